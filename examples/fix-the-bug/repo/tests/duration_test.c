#include "../src/duration.h"

#include <stdio.h>

static int failures;

static void check(const char *text, long expected)
{
	long found = parse_duration(text);

	if (found != expected) {
		printf("FAIL parse_duration(\"%s\"): expected %ld, found %ld\n", text, expected, found);
		failures++;
	}
}

int main(void)
{
	check("90s", 90);
	check("5m", 300);
	check("2d", 172800);
	check("1h30m", 5400);
	check("1d12h", 129600);
	check("", -1);
	check("h", -1);
	check("10", -1);
	check("99999999999999999999s", -1);
	if (failures == 0)
		printf("9 checks passed\n");
	return failures != 0;
}
