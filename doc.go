// Package dlock provides read-write locks that the processes of a distributed system share, on
// stores such as ZooKeeper.
//
// A program imports a driver for its side effect, opens a client, and takes locks:
//
//	import (
//		"github.com/dlock-go/dlock"
//		_ "github.com/dlock-go/dlock/zkdriver"
//	)
//
//	client, err := dlock.Open("zk", "zk://zk1:2181,zk2:2181,zk3:2181/locks")
//	...
//	defer client.Close()
//
//	lock, err := client.RWMutex("stock/42").Lock(ctx)
//	...
//	defer lock.Unlock()
//	err = save(lock.Context(ctx), order, lock.Token())
//
// A lock is granted in the order of arrival, to one writer or to the readers that stand
// together at the head of the queue. It can be lost: the session with the store may end while
// the lock is held. The client knows before anybody else is let in ([Lock.Lost], [Lock.Err],
// [Lock.Context]), but what it has sent out before cannot be called back, and a process that
// was paused may go on for a moment before it looks. So the resource has to check the fencing
// token ([Lock.Token]) where a mistake would be expensive.
package dlock
