#!/bin/sh
# The check of a patch: three and nothing is three, whatever the order.
set -u
. ./calculator/add.sh
[ "$(add 3 0)" = 3 ] && [ "$(add 0 3)" = 3 ] || { echo "add 3 0 is $(add 3 0), add 0 3 is $(add 0 3); both must be 3"; exit 1; }
echo "add 3 0 and add 0 3 are 3"
