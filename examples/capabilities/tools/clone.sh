#!/bin/sh
# A fresh copy of the calculator. It is made beside the old one and put in its place, so that it is there whole.
set -eu
rm -rf calculator.new
mkdir calculator.new
cat > calculator.new/add.sh <<'END'
# add A B: both together
add() { echo $(($1 - $2)); }
END
rm -rf calculator
mv calculator.new calculator
echo '{"files":["calculator/add.sh"]}'
