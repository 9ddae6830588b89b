#!/bin/sh
# The probe of tools/ship.sh: did this call take effect? It gets the call's own object. Earlier runs do not count.
set -u
. tools/ledger.sh
order=$(text order)
for booking in "$ledger/ship-$(name "$order")-$(name "$(text run)-$(text action)")-"*; do
    if [ -f "$booking" ]; then
        printf '{"took_effect":true,"result":{"shipped":"%s"}}\n' "$order"
        exit 0
    fi
done
echo '{"took_effect":false}'
