#!/bin/sh
# Ships an order at a warehouse that ships again when told again. Whether it has can be asked: tools/shipped.sh.
set -u
. tools/ledger.sh
sleep 1
book "ship-$(name "$(text order)")-$(attempt)" "ship $(text order)"
sleep 1
printf '{"shipped":"%s"}\n' "$(text order)"
