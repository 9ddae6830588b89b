#!/bin/sh
# A fresh copy of the calculator. It is made beside the old one and put in its place, so that it is there whole.
set -eu
rm -rf work.new
mkdir work.new
cat > work.new/add.sh <<'END'
# add A B: both together
add() { echo $(($1 - $2)); }
END
rm -rf work
mv work.new work
echo '{"files":["work/add.sh"]}'
