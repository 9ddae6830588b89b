#!/bin/sh
# What is due: the captured input, as it came.
set -u
due=$(tr -d '\n' | sed -n 's/.*"inputs" *: *{ *"due" *: *\({ *"due" *: *\[[^]]*\] *}\).*/\1/p')
if [ -z "$due" ]; then
    echo '{"error":{"class":"input","message":"there is no list of what is due among the inputs"}}'
    exit 1
fi
printf '%s\n' "$due"
