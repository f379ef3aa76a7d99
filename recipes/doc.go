// Package recipes implements dlock's locks. It uses only the interfaces and
// guarantees of package driver, so the locks work with every store that has a
// driver.
//
// The read-write lock is the classic recipe of ephemeral sequential nodes,
// described in "ZooKeeper: Wait-free coordination for Internet-scale systems"
// (Hunt et al., USENIX ATC 2010), section 2.4, and in "Recipes and Solutions"
// of the ZooKeeper manual. Each contender appends a node to the queue of the
// lock: host-W-seq for a writer, host-R-seq for a reader. A writer holds the
// lock when no node is ahead of its own, a reader when no writer's node is.
// Each waiter watches only its predecessor, the last node that it must wait
// for. A release therefore wakes only the contenders that it grants the lock
// to.
//
// Applications use package dlock, which exports every name of this package.
package recipes
