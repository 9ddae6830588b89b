#ifndef DURATION_H
#define DURATION_H

/* Seconds in a span such as "1h30m"; -1 if it cannot be read. */
long parse_duration(const char *text);

#endif
