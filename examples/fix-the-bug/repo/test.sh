#!/bin/sh
# Builds and runs the tests; nothing is left behind.
set -eu
cd "$(dirname "$0")"
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
"${CC:-cc}" -Wall -o "$built/test" src/duration.c tests/duration_test.c
"$built/test"
