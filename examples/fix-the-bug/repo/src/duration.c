#include "duration.h"

#include <ctype.h>
#include <limits.h>

/* Seconds in one of a unit; 0 if there is no such unit. */
static long unit(char letter)
{
	switch (letter) {
	case 's':
		return 1;
	case 'm':
		return 60;
	case 'h':
		return 60 * 60;
	case 'd':
		return 24 * 60 * 60;
	default:
		return 0;
	}
}

long parse_duration(const char *text)
{
	long total = 0;

	if (*text == '\0')
		return -1;
	while (*text != '\0') {
		long amount = 0;
		long seconds;

		if (!isdigit((unsigned char)*text))
			return -1;
		while (isdigit((unsigned char)*text)) {
			if (amount > (LONG_MAX - 9) / 10)
				return -1;
			amount = amount * 10 + (*text++ - '0');
		}
		seconds = unit(*text);
		if (seconds == 0)
			return -1;
		text++;
		if (amount > LONG_MAX / seconds)
			return -1;
		total = amount * seconds;
	}
	return total;
}
