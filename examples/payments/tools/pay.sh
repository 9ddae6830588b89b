#!/bin/sh
# Pays an invoice at a bank that knows idempotency keys: a key it has seen is answered with the first receipt and not
# booked again. A second before and a second after the booking leave time to be killed on either side of it.
set -u
. tools/ledger.sh
key=$(name "$(text idempotency_key)")
sleep 1
if book "pay-$key" "pay $(text invoice) $(number amount) to $(text to)"; then seen=false; else seen=true; fi
sleep 1
printf '{"receipt":"r-%.8s","invoice":"%s","amount":%s,"seen_before":%s}\n' \
    "$key" "$(text invoice)" "$(number amount)" "$seen"
