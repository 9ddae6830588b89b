#!/bin/sh
# The calculator's tests.
set -u
. ./calculator/add.sh
failed=0
for sum in "1 2 3" "2 2 4" "0 5 5"; do
    set -- $sum
    [ "$(add "$1" "$2")" = "$3" ] || { failed=$((failed + 1)); }
done
printf '{"passed":%s,"failed":%s}\n' $((3 - failed)) "$failed"
[ "$failed" -eq 0 ]
