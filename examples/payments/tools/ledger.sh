# Sourced by the tools: the world they act on. The ledger is a folder with one file per booking. A booking is written
# beside it and then linked in, so that it is there whole or not at all, however the tool is killed.

ledger=state/ledger
mkdir -p "$ledger" || exit 1
call=$(tr -d '\n')

# text NAME: a string of the call, its escapes kept.
text() { printf '%s' "$call" | sed -n 's/.*"'"$1"'" *: *"\([^"\\]*\(\\.[^"\\]*\)*\)".*/\1/p'; }

# number NAME: a number of the call.
number() { printf '%s' "$call" | sed -n 's/.*"'"$1"'" *: *\([0-9][0-9.]*\).*/\1/p'; }

# name WORDS: something that can be a file's name.
name() { printf '%s' "$1" | tr -c 'A-Za-z0-9.-' '-'; }

# book NAME LINE: true if this made the booking, false if it was there already.
book() {
    printf '%s\n' "$2" > "state/$1.$$" || exit 1
    ln "state/$1.$$" "$ledger/$1" 2>/dev/null
    made=$?
    rm -f "state/$1.$$"
    [ -f "$ledger/$1" ] || exit 1
    return "$made"
}

# attempt: a name no other attempt at any call has.
attempt() { name "$(text run)-$(text action)-$(number attempt)-$(number fence)"; }
