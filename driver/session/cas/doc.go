// Package cas implements session.Store on key-value stores with conditional
// writes, such as NATS JetStream, Consul or DynamoDB. A driver provides a [KV]
// and calls [Connect].
//
// # Layout
//
//	q/QUEUE    the nodes of a queue, oldest first, and the node released last
//	s/SESSION  the session's timeout and a count of its heartbeats
//	v/QUEUE    the value beside a queue
//
// A change of a queue rewrites its key, on the condition that neither this key
// nor the session's key was written meanwhile. An uncontended lock costs two
// requests. A hand-over costs the holder one to three, and with notices the next
// waiter one. All contenders of a lock compete for one key, and each change costs
// bytes in proportion to their number, so this package is meant for dozens of
// contenders, not for thousands.
//
// The write that adds a node does not know its own revision, which is the node's
// token and sequence. Readers fill it in, and so must any other program before it
// writes the key.
//
// # Why it is correct
//
// The queue's key alone says which nodes exist. Readers ignore none of them, so
// one write removes a node for all readers at once.
//
// A session has ended when its key is gone. Every change of a session is made on
// the condition of its key, and IDs are never used again, so it can change
// nothing any more. Its nodes stay until they are pruned, on the condition that
// the session's key is gone. Each session that meets the nodes of others looks
// for this with each heartbeat, so they block for an eighth of a session timeout
// at most. A pruned node never returns, because only its session could add it.
//
// The store needs no clock. A session's key that has kept its revision for the
// session's timeout, by the clock of a waiter that began to count after it had
// read the key, was not renewed in that time, and the lease has ended. The
// waiter removes the key on the condition of that revision, so a heartbeat that
// comes first saves the session.
//
// Each heartbeat gives the session's key a new revision, and so makes all its
// earlier changes fail that are still under way. Cancel sends one, after which
// the queue shows for good which Creates have succeeded: by their number and
// owner.
//
// # What a driver cannot give
//
// A store that loses writes that it has answered breaks the locks: there is no
// grace. Nodes have no time of creation. A process whose session was removed by
// hand learns of it with its next change or heartbeat, and not with a look.
//
// This package is unsettled, like package session.
package cas
