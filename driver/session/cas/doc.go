// Package cas implements session.Store on key-value stores with conditional
// writes, such as NATS JetStream, Consul or DynamoDB. A driver provides a [KV]
// and calls [Connect]. Package dlocktest/castest tests it.
//
// The key q/QUEUE holds the nodes of a queue and the value beside it; s/SESSION
// is written with each heartbeat. A change of a queue rewrites its key, on the
// condition that neither this key nor the session's was written meanwhile. An
// uncontended lock costs two requests. A hand-over costs the holder one to
// three, and with notices the next waiter one. All contenders of a lock compete
// for one key, and each change costs bytes in proportion to their number, so
// this package is meant for dozens of contenders, not for thousands.
//
// # Why it is correct
//
// The queue's key alone says which nodes exist. A session has ended when its
// key is gone, and can change nothing any more, because IDs are never used
// again. Its nodes stay until those behind them, which look for this with each
// heartbeat, remove them on the condition that the key is gone. Each looks for
// the four living sessions ahead of it, and for those that have been silent.
//
// The store needs no clock. A session's key that has kept its revision for the
// session's timeout, by the clock of a waiter that began to count after it had
// read the key, was not renewed in that time, and the lease has ended. The
// waiter removes the key on the condition of that revision, so a heartbeat that
// comes first saves the session.
//
// Each write of a queue makes the earlier ones fail that are still under way. So
// after Cancel, which writes, the queue shows for good which Creates have
// succeeded, and Cancel has removed them. Without a guard, a Create of an expired
// session may still arrive in a queue that nobody has written since. Whoever
// meets the node removes it.
//
// # What a driver cannot give
//
// A store that loses writes that it has answered breaks the locks, unless it is
// [Generational]. Nodes have no time of creation. A process whose session was
// removed by hand learns of it with its next change or heartbeat, and not with a
// look.
//
// This package is unsettled, like package session.
package cas
