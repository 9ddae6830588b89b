#!/bin/sh
# The reading: the captured input "metrics", as it came.
set -u
reading=$(tr -d '\n' | sed -n 's/.*"metrics" *: *\({[^{}]*}\).*/\1/p')
if [ -z "$reading" ]; then
    echo '{"error":{"class":"input","message":"there is no metrics reading among the inputs","hint":"the task file names it under [inputs]"}}'
    exit 1
fi
printf '%s\n' "$reading"
