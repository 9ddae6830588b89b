#!/bin/sh
# Passes if the ledger holds one payment of inv-7 and one shipment of ord-7.
set -u
paid=$(cat state/ledger/pay-* 2>/dev/null | grep -c '^pay inv-7 ')
shipped=$(cat state/ledger/ship-* 2>/dev/null | grep -c '^ship ord-7$')
echo "payments of inv-7: $paid; shipments of ord-7: $shipped"
[ "$paid" -eq 1 ] && [ "$shipped" -eq 1 ]
