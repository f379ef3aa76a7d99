#!/bin/sh
# Makes sure that the benchmark finds ZooKeeper, and as many of the peers as can
# be had: Curator and kazoo (see need-peers.sh) and etcd. Installs what is missing
# where that is possible. Without ZooKeeper there is nothing to measure, which is
# an error; a peer that is missing is left out of the run, and the report says so.
set -eu
cd "$(dirname "$0")"

sh need-zookeeper.sh
sh need-peers.sh || echo "benchmark: what is missing is left out" >&2
sh need-etcd.sh || echo "benchmark: etcd is left out" >&2
