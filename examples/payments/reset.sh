#!/bin/sh
# Empties the example's world. Runs that are stored are not touched: take a new id afterwards.
set -eu
cd "$(dirname "$0")"
rm -rf state
