#!/bin/sh
# Replaces the operator.
set -eu
operator=$(tr -d '\n' | sed -n 's/.*"operator" *: *"\([-+*/]\)".*/\1/p')
[ -n "$operator" ] || { echo '{"error":{"class":"invalid_argument","message":"no operator","field":"/operator"}}'; exit 1; }
printf '# add A B: both together\nadd() { echo $(($1 %s $2)); }\n' "$operator" > calculator/add.sh.new
mv calculator/add.sh.new calculator/add.sh
printf '{"line":"add() { echo $(($1 %s $2)); }"}\n' "$operator"
