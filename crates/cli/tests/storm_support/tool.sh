#!/bin/sh
# The world that killed runs act on: one program for all their tools. `sh tool.sh NAME` reads a call on stdin and does
# what NAME says; everything it did stands in the ledger afterwards, each entry made by one system call.
#
# ledger/log         one line per execution: NAME RUN ACTION ATTEMPT WORD
# ledger/paid/KEY    what the bank booked; it books a key once
# ledger/hold/X      while this file is there, whoever comes to X stays there

name=$1
ledger=../ledger
IFS= read -r call

# field NAME: sets `value` to a text or a number of the call.
field() {
    value=${call#*\"$1\":}
    [ "$value" != "$call" ] || value=
    case $value in
        \"*) value=${value#\"} value=${value%%\"*} ;;
        *) value=${value%%[,\}]*} ;;
    esac
}
field run; run=$value
field action; action=$value
field attempt; attempt=$value

log() { printf '%s\n' "$name $run $action $attempt $1" >> "$ledger/log"; }

# stop PLACE: a moment in which to be killed; as long as the place is held.
stop() {
    sleep 0.015
    while [ -e "$ledger/hold/$name.$1" ]; do
        : > "$ledger/at.$name.$1"
        sleep 0.02
    done
}

case $name in
look) # a read; it leaves somebody behind
    log begun
    setsid sleep 60 > /dev/null 2>&1 &
    stop before
    printf '{"seen":"%s"}\n' "$action"
    ;;
edit) # changes a file of the workspace
    field text
    log begun
    stop before
    printf '%s\n' "$value" >> ../workspace/shared.txt
    stop after
    printf '{"written":"%s"}\n' "$value"
    ;;
pay) # the bank knows idempotency keys: one it has seen is answered and not booked again
    field idempotency_key
    log "asked-$value"
    setsid sleep 60 > /dev/null 2>&1 &
    stop before
    set -C
    { true > "$ledger/paid/$value"; } 2> /dev/null
    set +C
    [ -e "$ledger/paid/$value" ] || exit 1
    stop after
    printf '{"receipt":"r-%.8s"}\n' "$value"
    ;;
ship) # ships as often as it is told, through a process of its own that outlives this one
    log begun
    stop before
    sh -c 'sleep 0.03; printf "%s\n" "$1" >> "$2"' - "$name $run $action $attempt did" "$ledger/log" &
    wait
    stop after
    printf '{"shipped":"%s"}\n' "$action"
    ;;
shipped) # tells whether it was shipped
    name=ship
    if grep -q "^ship $run $action [0-9]* did$" "$ledger/log"; then
        printf '{"took_effect":true,"result":{"shipped":"%s"}}\n' "$action"
    else
        printf '{"took_effect":false}\n'
    fi
    ;;
email | deploy) # done as often as told, and nobody can tell afterwards
    log begun
    stop before
    log did
    stop after
    printf '{"done":"%s"}\n' "$action"
    ;;
check-one | check-two) # acceptance
    log begun
    stop before
    echo "as it should be"
    ;;
*)
    exit 64
    ;;
esac
