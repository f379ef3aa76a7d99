// Package etcddriver stores locks in etcd. It is tested with etcd 3.4. Import
// the package for its side effect and open a client by its name:
//
//	import _ "github.com/dlock-go/dlock/contrib/etcddriver"
//
//	client, err := dlock.Open("etcd", "etcd://etcd1,etcd2,etcd3/locks")
//
// A program that has a *clientv3.Client already uses [NewConnector] with
// dlock.NewClient. Its sessions have connections of their own, to the endpoints
// of that client.
//
// # Data source names
//
//	etcd://[user:password@]host[:port][,host[:port]...][/prefix][?parameter=value&...]
//
// The default port is 2379. IPv6 addresses are in brackets. All keys of the
// driver begin with the prefix, which defaults to "dlock". Any character of the
// user, password and values may be written as %XX. In the user and password,
// the characters / ? @ : , and % must be written so, as must & in a value.
// These are the parameters, with their defaults in parentheses:
//
//	session_timeout  how long etcd keeps a session without heartbeats, in whole
//	                 seconds; etcd grants at least one and a half election
//	                 timeouts (10s)
//	tls              true: use TLS (false)
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name expected in the server's certificate (the host)
//
// # How it works
//
// A session is an etcd lease, with its own client and connections. A node is a
// key attached to the lease, so etcd removes it with the lease. The key's
// create revision is the node's sequence and its fencing token. A session
// reuses the keys of its removed nodes in a queue, because listing a queue
// visits every key it has had since etcd was last compacted.
//
// Create is a single transaction that lists the queue and puts the key. A
// contender without a node ahead holds the lock. Releasing it is another
// request, so a free lock takes two requests.
//
// A session that waits in a queue, or holds a lock for longer than 300 ms,
// follows the queue with one etcd watch, and keeps following it for 10 to 20 s
// after its last wait or lock. All watches of a session share one stream.
// Starting to follow a queue takes two requests: the watch, and a list after
// it. From then on, a waiting contender needs no requests beyond its own two.
//
// A session that follows the queue releases its lock by a transaction that also
// puts a key announcing the release. Watches receive both changes together, so
// that the next waiter holds the lock as soon as its session receives them. The
// session removes that key when it stops following the queue. A session that
// does not follow the queue only deletes its node's key, and a waiter, if any,
// lists the queue once.
//
// A session receives every change of a queue that it follows, in the order of
// etcd's revisions. A hand-over among n sessions therefore costs the server n
// messages for the new node and n for the release.
//
// A waiter that joins with more than 16 nodes ahead is far behind. Unless its
// session has other uses for the queue, it watches only the node ahead and the
// waiter's own node. It is not told of releases, so the waiter lists the queue
// when its turn comes, and its hand-over takes two consecutive requests.
//
// When an etcd watch is lost, or etcd has compacted the changes it missed, the
// session opens it again and lists the queue. If a server is silent for half of
// the session timeout, the session opens another stream, at another server if
// there is one. It does so after about a quarter of the timeout if the server
// answers but has not reached a revision that a heartbeat has seen, as happens
// when the disk of a follower hangs.
//
// A heartbeat is a keep-alive of the lease, followed by a read that proves that
// the leader had no successor: see heartbeat.go. Heartbeats are sent every
// eighth of the timeout. In this process, the session ends three quarters of
// the timeout after it sent the last keep-alive that was confirmed by such a
// read.
//
// # Comparison with concurrency.Mutex
//
// BenchmarkFreeLock, BenchmarkContended and BenchmarkDrain compare the driver
// with etcd's own lock in the same run. On a machine with two cores, shared by
// clients and server, on 23 November 2026 (the free lock on 24 November):
//
//	                    this driver   Mutex
//	a free lock         0.94 ms       0.92 ms
//	  2 contenders      1,063/s       33/s
//	100 waiters, all    0.21 s        0.18 s
//
// Four runs of BenchmarkDrain beside other load gave these times for 100
// waiters, and median ratios of 0.95 to 1.34. If the sessions of all waiters
// followed the queue, the ratios would be 1.21 to 1.70.
//
// A free lock takes two requests with either. Two runs gave 1.01 times the time
// of a Mutex, because nodes have data here and the driver does a little more
// work.
//
// A waiter of a Mutex watches from a past revision, and etcd serves such
// watches only every 100 ms, so n contenders of a Mutex get about 10 times n
// locks per second, however fast the machine is. With this driver, CPU and disk
// are the limit: each hand-over sends two messages to each session that follows
// the queue.
//
// # How the rules are kept
//
//	 1 order        a transaction gets the next revision, and revisions are the
//	                order
//	 2 names        the sequence is the create revision, which is never repeated
//	 3 tokens       the token is the create revision, counted for the whole store
//	 4 all or       the transaction is rejected if the session's cancellation key
//	   nothing      has changed or the lease has ended; one transaction removes
//	                many nodes of unanswered Creates and changes that key
//	 5 ahead        the transaction lists the queue before it puts the node
//	 6 watch        an etcd watch follows the queue from before a list of it; far
//	                behind, two watches tell only that a node has changed
//	 7 delete       a key is removed only for its node: no later node gets the
//	                key while a removal can still arrive; the reply says whether
//	                the key existed
//	 8 session end  driver.Lease, counted from heartbeats with a proof
//	 9 close        revoking the lease removes its keys
//	10 methods      each request has a time limit; errors by gRPC's codes
//	11 nothing      calls.Gate ends the calls in flight, and the client is closed
//	   outlives
//	12 replace      the prefix is in the value of the key, so the key stays
//	13 released     the deletion and its announcement have the same revision, and
//	                one etcd watch shows both as well as the waiter's own node; a
//	                session that does not follow the queue does not announce
//	                releases
//
// # What is stored
//
// With the prefix locks, the queue stock/42 has these keys. No queue has two
// consecutive slashes in its name.
//
//	locks/stock/42//694d9af3a6d2710c:1   node 1 of the session 694d9af3a6d2710c
//	locks/stock/42//web9-W-0000000003    a node of another program, if any
//	locks/stock/42/.released             the last part of the key of the node
//	                                     released last; any session may remove
//	                                     it
//	locks//kept/stock/42                 the value beside the queue, behind
//	                                     the token of its node in 16 hexadecimal
//	                                     digits. It has no lease; "etcdctl del"
//	                                     removes it
//	locks//cancelled/694d9af3a6d2710c    Creates that the session sent before
//	                                     the last change of this key are
//	                                     cancelled
//
// The name of a session is its lease ID in 16 hexadecimal digits. The other
// numbers are decimal. The number of a node may be reused once the node is gone
// and no request that creates or removes a node with this number can still
// arrive. The value of a node's key is the prefix of the node's name, a
// newline, and the data. The node's name is the prefix followed by the create
// revision in at least ten digits. A key whose last part is a name accepted by
// driver.ParseName is a contender, too: the sequence in that name is its rank,
// and the value is its data. All other keys are ignored. All keys of a session
// but the values are attached to its lease.
//
// A program in another language takes part with the following transactions,
// written here for "etcdctl txn", and a lease that it keeps alive. To create
// node 1, if the cancellation key does not exist, or else with its modification
// revision instead of 0:
//
//	mod("locks//cancelled/694d9af3a6d2710c") = "0"
//
//	get --prefix locks/stock/42//
//	put --lease=694d9af3a6d2710c locks/stock/42//694d9af3a6d2710c:1 "web1-W-\n{}"
//
// To release it, if its create revision is 1234 (without the put if the lock
// was held by a reader or not held at all, or to make the next waiter list the
// queue):
//
//	create("locks/stock/42//694d9af3a6d2710c:1") = "1234"
//
//	del locks/stock/42//694d9af3a6d2710c:1
//	put --lease=694d9af3a6d2710c locks/stock/42/.released 694d9af3a6d2710c:1
//
// To show a queue, or a session's keys:
//
//	etcdctl get --prefix locks/stock/42// --sort-by=CREATE
//	etcdctl lease timetolive --keys 694d9af3a6d2710c
//
// To take a lock away, delete the node's key or revoke the lease.
//
// # Users and permissions
//
// A user needs the permission readwrite for all keys that begin with "locks/",
// with which it can take away any lock there. Each new stream of an
// authenticated client costs the server a password check, so a session uses
// only one stream for heartbeats and one for watches.
//
// # Connections
//
// A session has one connection to each server in the data source name, shared
// by all goroutines and all requests, watches and heartbeats. There is no pool
// and no limit to configure. A server needs one file descriptor per session.
//
// Requests are distributed over the servers in turn. If a server leaves a
// request unanswered, the session avoids it for a minute, unless all servers
// have done so. The unanswered request takes a quarter of the session timeout,
// but at least 1 s and at most 2.5 s.
//
// # What etcd has to guarantee, and what it cannot
//
// The leader measures leases with its monotonic clock, so setting a wall clock
// ends no lease. The clocks of the leader and of this process may run at rates
// that differ by up to a quarter. A newly elected leader restarts every lease,
// so a dead session keeps its locks longer if leaders change.
//
// A leader whose process or disk was suspended for longer than the session
// timeout may, when it resumes, have leases revoked that were renewed at its
// successor (etcd-io/etcd 15247). A session learns of that from its next
// heartbeat or from the watch of its node; until then, there may be two
// holders. The releases of etcd since March 2024 prevent most of this. Use one
// of them, and fencing tokens.
//
// The data source name has to name the servers themselves rather than an etcd
// grpc-proxy. Such a proxy sends keep-alives on its own schedule, and answers a
// session's keep-alive with whatever it receives next, so a reply does not
// prove that etcd renewed the lease after the session asked, and there may be
// two holders. It also leaves progress requests unanswered, so the session
// keeps opening new streams.
//
// etcd must not lose changes that it has confirmed, so don't run it with
// --unsafe-no-fsync. Restoring an old backup repeats revisions and therefore
// tokens. Restore with a bumped revision (etcdutl snapshot restore
// --bump-revision). A session ends if a heartbeat sees an older revision than
// the one before; until then, there may be two holders.
//
// Changes stay in etcd's history until it is compacted. Turn on
// --auto-compaction-retention, since each lock adds two revisions. While etcd
// is out of space (NOSPACE), locks wait until an operator has made room.
package etcddriver
