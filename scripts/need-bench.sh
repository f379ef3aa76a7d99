#!/bin/sh
# Makes sure that the benchmark finds ZooKeeper, and as many of the peers as can
# be had: Curator and kazoo (see need-peers.sh). Installs what is missing
# where that is possible. Without ZooKeeper there is nothing to measure, which is
# an error; a peer that is missing is left out of the run, which logs why.
set -eu
cd "$(dirname "$0")"

sh need-zookeeper.sh
sh need-peers.sh || echo "benchmark: what is missing is left out" >&2
