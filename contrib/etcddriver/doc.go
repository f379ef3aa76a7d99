// Package etcddriver keeps locks in etcd. It is tested with etcd 3.4. Import the
// package for its side effect and open a client by its name:
//
//	import _ "github.com/dlock-go/dlock/contrib/etcddriver"
//
//	client, err := dlock.Open("etcd", "etcd://etcd1,etcd2,etcd3/locks")
//
// # Data source names
//
//	etcd://[user:password@]host[:port][,host[:port]...][/prefix][?parameter=value&...]
//
// The port is 2379 if it is missing. An IPv6 address stands in brackets. All keys of
// the driver begin with the prefix, which is "dlock" if it is missing. In the user,
// the password and the values, any character may be written as %XX. The characters
// / ? @ : , and % of a user or a password, and & of a value, have to be written like
// that. The parameters are listed below, with their defaults in parentheses:
//
//	session_timeout  how long etcd keeps a session that it does not hear from, in whole
//	                 seconds; etcd grants one and a half election timeouts or more (10s)
//	tls              true: use TLS (false)
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name expected in the server's certificate (the host)
//
// # How it works
//
// A session is a lease of etcd, with a client and connections of its own. A node is a
// key that belongs to the lease, so etcd removes the node with the lease. The create
// revision of the key is the sequence of the node and its fencing token. When a node
// has gone, the next node of its session in that queue gets the same key. The reason:
// to list a queue, etcd looks at every key that the queue has had since the history
// was compacted.
//
// Create is one transaction: it lists the queue, and puts the key. A contender that
// finds no node ahead holds the lock. To release the lock is one more request, so a
// free lock takes two requests.
//
// A session that waits in a queue, or holds a lock for longer than 300 ms, follows the
// queue by one watch of etcd. It goes on following it for 10 to 20 s after the last
// wait or lock. All watches of a session share one stream. To begin takes two requests:
// the watch, and a list after it. From then on a contender that waits needs no request
// but those two of its own.
//
// A session that follows the queue releases its lock by a transaction, which also puts
// a key that says so. The watches of etcd receive both changes together. So the next
// waiter holds the lock as soon as its session receives them. When the session stops
// following the queue, it removes the key that says so. Any other session only removes
// the key of its node. If there is a waiter, it lists the queue once.
//
// A session receives every change of a queue that it follows, in the order of etcd's
// revisions. So a hand-over among n sessions costs the server n messages for the new
// node and n for the release.
//
// A waiter that joins with more than 16 nodes ahead is far behind. If its session has
// no other use for the queue, it watches only the node ahead and the waiter's own node,
// and receives nothing else. It is not told of a release, so the waiter lists the queue
// when its turn comes: its hand-over takes two requests, one after the other.
//
// A watch of etcd that is lost is opened again, and then the queue is listed. The same
// happens if etcd has compacted the changes that were missed. If a server gives no
// sign of life for half of the session timeout, the session opens another stream, at
// another server if there is one. It does so after about a quarter of the timeout if
// the server answers, but has not reached a revision that a heartbeat has seen: the
// disk of a follower may hang.
//
// A heartbeat is a keep-alive of the lease, followed by a read that proves that the
// leader had no successor: see heartbeat.go for the proof. In this process the
// session ends after three quarters of the timeout. This time counts from the moment
// before the session sent the last keep-alive that such a read has confirmed.
// Heartbeats are sent every eighth of the timeout.
//
// # Beside concurrency.Mutex
//
// BenchmarkFreeLock, BenchmarkContended and BenchmarkDrain compare the driver with
// etcd's own lock in one run. On a machine with two cores, for clients and server
// together, on 23 November 2026, the free lock on 24 November:
//
//	                    this driver   Mutex
//	a free lock         0.94 ms       0.92 ms
//	  2 contenders      1,063/s       33/s
//	100 waiters, all    0.21 s        0.18 s
//
// Four runs of BenchmarkDrain beside other work gave these times of 100 waiters, and
// median ratios of 0.95 to 1.34. If the sessions of all waiters followed the queue, the
// ratios would be 1.21 to 1.70.
//
// A free lock takes two requests with both. Two runs gave 1.01 times the time of a
// Mutex: here a node has data, and this process does a little more work.
//
// A waiter of a Mutex watches from a past revision, and etcd serves such watches every
// 100 ms only. So n contenders of a Mutex get about 10 times n locks per second,
// however fast the machine is. With this driver, processors and disk are the limit:
// each hand-over sends two messages to each session that follows the queue.
//
// # How the rules are kept
//
//	 1 order        a transaction gets the next revision, and revisions are the order
//	 2 names        the sequence is the create revision, which comes only once
//	 3 tokens       the token is the create revision of the whole store
//	 4 all or       the transaction is refused if its key for cancellation exists, or if
//	   nothing      the lease has ended; cancelling is one transaction, also repeated
//	 5 ahead        the transaction lists the queue before it puts the node
//	 6 watch        one watch of etcd follows the queue from before a list of it; far
//	                behind, two watches that tell only that a node has changed
//	 7 delete       a key is removed only for its node: no later node gets the key while
//	                a removal can still arrive; the reply says whether there was a key
//	 8 session end  driver.Lease, counted from heartbeats with a proof
//	 9 close        revoking the lease removes its keys
//	10 methods      each request has a time limit; errors by gRPC's codes
//	11 nothing      calls.Gate ends the calls in flight, and the client is closed
//	   outlives
//	12 replace      the prefix is in the value of the key, so the key stays
//	13 released     deletion and release have one revision, and one watch of etcd shows
//	                both, and the waiter's own node; a session that does not follow
//	                the queue does not tell of its release
//
// # What is stored
//
// Below the prefix locks, the queue stock/42 has these keys. No queue has two slashes
// in its name.
//
//	locks/stock/42//694d9af3a6d2710c:1   node 1 of the session 694d9af3a6d2710c
//	locks/stock/42//web9-W-0000000003    a node of another program, if there is one
//	locks/stock/42/.released             the last part of the key of the node that was
//	                                     released last; any session may remove it
//	locks//cancelled/694d9af3a6d2710c:8  Create number 8 of that session is cancelled
//
// The name of a session is the number of its lease, in 16 hexadecimal digits. The other
// numbers are decimal. Each Create of a session has a number of its own. The number of
// a node is free again when the node has gone, and when no request that makes or
// removes a node with this number can still arrive. The value of a node's key is the
// prefix of the node's name, a newline, and the data. The name of the node is the
// prefix and the create revision, in ten digits or more. A key whose last part is a
// name that driver.ParseName accepts is a contender as well, and the sequence in that
// name is its rank; its value is its data. All other keys are ignored. All keys of a
// session belong to its lease.
//
// A program in another language takes part by these transactions, written here for
// "etcdctl txn", with a lease that it keeps alive. To create node 1 by Create number 8:
//
//	create("locks//cancelled/694d9af3a6d2710c:8") = "0"
//
//	get --prefix locks/stock/42//
//	put --lease=694d9af3a6d2710c locks/stock/42//694d9af3a6d2710c:1 "web1-W-\n{}"
//
// To release it, if 1234 is its create revision (without the put if the lock was held
// by a reader, or was not held, or to make the next waiter list the queue):
//
//	create("locks/stock/42//694d9af3a6d2710c:1") = "1234"
//
//	del locks/stock/42//694d9af3a6d2710c:1
//	put --lease=694d9af3a6d2710c locks/stock/42/.released 694d9af3a6d2710c:1
//
// The operator's view of a queue, and of a session's keys:
//
//	etcdctl get --prefix locks/stock/42// --sort-by=CREATE
//	etcdctl lease timetolive --keys 694d9af3a6d2710c
//
// To take a lock away, delete the key of the node, or revoke the lease.
//
// # Users and permissions
//
// A user needs the permission readwrite for all keys that begin with "locks/". Such a
// user can take every lock below that prefix away. Each new stream of an authenticated
// client costs the server one check of the password. A session therefore uses one
// stream for its heartbeats and one for its watches.
//
// # Connections
//
// A session has one connection to each server of the data source name. All goroutines
// share these connections, and so do all requests, watches and heartbeats. There is no
// pool, and no limit to set. A server needs one file descriptor for each session.
//
// Requests go to all servers in turn. A session sends none for a minute to a server
// that has left a request without an answer, unless it has left all servers so. That
// request takes a quarter of the session timeout, at least 1 s and at most 2.5 s.
//
// # What etcd has to be, and what it cannot give
//
// The leader counts leases by its monotonic clock, so a step of a wall clock ends no
// lease. The clocks of the leader and of this process may run at rates that differ by
// a quarter. A leader that is elected gives every lease its whole time again. So a
// dead session keeps its locks longer if leaders change.
//
// A leader whose process or disk was stopped for longer than the session timeout may,
// when it goes on, have leases revoked that were renewed at its successor (etcd-io/etcd
// 15247). A session learns that from its next heartbeat, or from the watch of its node,
// and until then there may be two holders. The releases of etcd since March 2024
// prevent most of this. Use one of them, and fencing tokens.
//
// The data source name has to name the servers themselves, and not an etcd grpc-proxy.
// Such a proxy sends keep-alives at times of its own, and answers those of a session
// with what it receives next. So an answer may be late, and it does not prove that etcd
// has counted the lease from when the session asked: there may be two holders. It also
// answers no request for progress, so the session keeps opening new streams.
//
// etcd must not lose changes that it has confirmed. So do not run it with
// --unsafe-no-fsync. If an old backup is restored, revisions come again, and so do
// tokens. Restore with a bumped revision (etcdutl snapshot restore --bump-revision). A
// session ends if a heartbeat finds an older revision than the heartbeat before. Until
// then there may be two holders.
//
// Changes stay in etcd's history until it is compacted. Turn on
// --auto-compaction-retention, since a lock makes two revisions. If the space of etcd
// is used up (NOSPACE), locks wait until an operator has made room.
package etcddriver
