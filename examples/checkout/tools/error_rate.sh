#!/bin/sh
# Errors per 10,000 requests of the reading that source_id cites. The reading itself is handed to us, not its copy.
set -u
call=$(tr -d '\n')
reading=$(printf '%s' "$call" | sed -n 's/.*"evidence" *: *{ *"source_id" *: *\({[^{}]*}\).*/\1/p')
source_id=$(printf '%s' "$call" | sed -n 's/.*"args" *: *{[^{}]*"source_id" *: *"\([^"\\]*\)".*/\1/p')
errors=$(printf '%s' "$reading" | sed -n 's/.*"errors" *: *\([0-9][0-9.]*\).*/\1/p')
requests=$(printf '%s' "$reading" | sed -n 's/.*"requests" *: *\([0-9][0-9.]*\).*/\1/p')
if [ -z "$errors" ] || [ -z "$requests" ]; then
    echo '{"error":{"class":"data","message":"the reading has no errors and requests","field":"source_id","hint":"cite a reading of read_metrics"}}'
    exit 1
fi
# 17 digits: read back, it is the same double
awk -v errors="$errors" -v requests="$requests" -v id="$source_id" 'BEGIN {
    if (requests + 0 == 0) {
        print "{\"error\":{\"class\":\"data\",\"message\":\"there were no requests, so there is no rate\",\"field\":\"source_id\"}}"
        exit 1
    }
    printf "{\"per_10k\":%.17g,\"source_id\":\"%s\",\"errors\":%s,\"requests\":%s}\n", errors * 10000 / requests, id, errors, requests
}'
