#!/bin/sh
# Sends an email. Nobody can tell later whether a lost one was sent.
set -u
. tools/ledger.sh
sleep 1
book "email-$(attempt)" "email to $(text to): $(text text)"
sleep 1
printf '{"sent_to":"%s"}\n' "$(text to)"
