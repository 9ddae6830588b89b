#!/bin/sh
# A fresh copy of the calculator. It is made beside the old one and put in its place, so that it is there whole.
set -eu
rm -rf calc.new
mkdir calc.new
cat > calc.new/add.sh <<'END'
# add A B: both together
add() { echo $(($1 - $2)); }
END
rm -rf calc
mv calc.new calc
echo '{"files":["calc/add.sh"]}'
