// Package zkdriver keeps locks in ZooKeeper. It is tested with ZooKeeper 3.8.
// Servers older than 3.5.3 have no containers; there it uses ordinary nodes
// instead. Import the package for its side effect and open a client by its
// name:
//
//	import _ "github.com/dlock-go/dlock/zkdriver"
//
//	client, err := dlock.Open("zk", "zk://zk1:2181,zk2:2181/locks?session_timeout=10s")
//
// # Data source names
//
//	zk://[user:password@]host[:port][,host[:port]...][/chroot][?parameter=value&...]
//
// The connect string of other ZooKeeper clients, host:port,host:port/chroot, is
// accepted, too. The default port is 2181. An IPv6 address stands in brackets.
// A name with several addresses counts as several hosts, and is resolved again
// for each attempt to connect. In the user, the password and the values, any
// character may be written as %XX, and / ? @ & : and % must be where they would
// have another meaning. An unknown parameter is an error. The parameters, with
// their defaults in parentheses, are:
//
//	session_timeout  how long the store keeps a session that it does not hear from;
//	                 the server may grant more or less (10s)
//	connect_timeout  how long Connect tries, at most 30s (session_timeout, but from
//	                 5s to 30s)
//	lease_margin     how much earlier than the store this process treats the session
//	                 as ended (a quarter of what the server grants; at most half)
//	tick_time        the ensemble's tickTime, as in 2s; lets locks survive longer
//	                 outages if session_timeout is five ticks or more, see below
//	                 (not stated; at most half of what the server grants)
//	handover         release: the release of a lock grants it to the next waiter;
//	                 list: the next waiter lists the queue, one request more, and so
//	                 does the release of a lock held for less than 300 ms. See below
//	                 (release)
//	names            dlock, or the lock library whose programs share the locks:
//	                 curator, curator-mutex or kazoo; see below (dlock)
//	acl              which users may use the queues that are made here: open, every
//	                 client; creator, the user whom the server recognises in the
//	                 connection; digest, the user of the data source name (open)
//	tls              true: use TLS, with the port of secureClientPort (false)
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name expected in the server's certificate (the host)
//	sequence_limit   where sequences start over; for tests, and the same for all
//	                 clients
//
// The TLS files are read when a session begins; when it reconnects, it uses
// them as they were then. A file is unusable if it cannot be read, if a key
// does not match its certificate, or if either side refuses a certificate.
// Until a connector has begun its first session, an unusable file is an error
// that is not retried. After that it is retried, so that files can be replaced
// while callers wait.
//
// # No existing client
//
// Unlike the other drivers, this one has no constructor for a client that the
// program has already. A *zk.Conn of go-zookeeper shows neither when it sent the
// ping or request that the server answered last, from which the lease counts,
// nor the end of its session before the server reports it. Its session also
// belongs to the program, whose Close would take the locks away.
//
// # What is stored
//
// The queue stock/42 is the node /stock/42 below the chroot. It is a container,
// so the store removes it when it is not used. A contender is an ephemeral
// sequential child of the queue's node. Missing nodes above the queue are made
// as ordinary nodes, which every client that may connect can read and create
// nodes below. The users of a queue need CREATE, DELETE and READ on it, and
// READ on each other's contenders. ZooKeeper reports a wrong password only when
// a permission is missing.
//
// With acl=creator and acl=digest, the driver refuses a queue that another user
// may alter, because that user could take away locks of this user. The node of
// stock/42 is a child of the node of stock, so the lock stock and the right to
// make locks below it belong to one user:
//
//   - If the node stock was made for stock/42, and this user has made it, the
//     first Lock of stock gives the node the ACL of a queue. From then on other
//     users cannot make locks below stock. The locks that they have made
//     already stay.
//   - If another user has made the node stock, it cannot be locked, and the
//     error says so.
//
// Users who share a segment of their names should not lock that segment.
//
// If the queue's node has data when a session first uses the queue, the driver
// keeps that data, and a Create takes three requests instead of one. Data
// written later is erased by the next Create, unless an operator takes WRITE on
// the node away from its users first; a Create then takes three requests as
// well.
//
// The sequences of a queue start over after two billion nodes, as soon as the
// queue has no contender. Its node is then removed and made again, with its ACL
// and its data. If there are queues below it, its node stays, and the
// contenders move to a child of the node, "new sequences" with a no-break
// space, which is removed and made again in its turn. From then on, other lock
// libraries, and releases of dlock that do not know of this child, cannot use
// the queue. If the old node was not as this driver makes it, the new node is
// an ordinary node. If the ACL of that old node names a user of the digest
// scheme, only a session with ADMIN on the node can copy the ACL. Without ADMIN
// the sequences do not start over, and the error says so.
//
// The queue orders/order-1234567890 is the node /orders/order-1234567890~,
// because a child whose name ends in ten or more digits counts as a contender
// of the queue, whichever program made it. A segment that ends in ten or more
// digits is therefore stored with a tilde appended, and a segment that ends in
// such digits and tildes with one more tilde. The chroot is used as it is.
//
// The value beside the queue stock/42 is the data of the node
// /kept values/stock/42/kept value below the chroot, with no-break spaces in both
// names. It is not below the queue's node, which the server removes when the
// queue is empty. Clients that reach one queue by different chroots, such as
// stock/42 below / and 42 below /stock, do not see each other's values. The first
// SetValue needs CREATE on the chroot. To make a job that runs once per period
// run again, delete that node. With acl=creator and acl=digest, a value that
// another user may alter or remove is refused like such a queue.
//
// ZooKeeper accepts no character beyond U+FFFF in a path. The driver refuses
// such a name with driver.ErrBadName.
//
// # Names of other libraries
//
// Curator, kazoo and go-zookeeper's Lock keep the same queue, but each looks only
// for nodes with its own names, and would enter beside a node of dlock. With the
// parameter names, the driver names its nodes as that library does:
//
//   - curator: web1-__WRIT__7 and web1-__READ__7 instead of web1-W-7 and web1-R-7,
//     for Curator's InterProcessReadWriteLock.
//   - curator-mutex: web1-lock-7, no readers, for Curator's InterProcessMutex and
//     go-zookeeper's Lock.
//   - kazoo: web1__lock__7 and web1__rlock__7, for WriteLock and ReadLock.
//
// dlock and the library then wait for each other, and readers share the lock.
// All clients of a lock must use the same setting. Queue and Lock.Node show the
// names of dlock, for nodes of the library, too. With curator-mutex, RLock fails
// with [errors.ErrUnsupported], and a downgraded lock stays exclusive in the
// store until Unlock.
//
// Create fails with errors.ErrUnsupported if a contender ahead has a name of
// another of these layouts, because its program would not wait for the new node.
// A queue in which sequences have started over below another queue, as described
// above, cannot be shared.
//
// A waiter behind a node of another library lists the queue when that node is
// removed, as with handover=list.
//
// # Handing over
//
// A holder releases a lock with a transaction that writes to the holder's node
// and deletes it. A waiter that watches the node is notified of the write, and
// holds the lock without a request. If the node is removed in any other way,
// the waiter is notified of a deletion, and lists the queue.
//
// This is safe only if no other client can write to the node. So a session has
// two logins: that of the data source name, and its own, under a random secret
// of the digest scheme. Only the second login may write to the session's
// contenders. Two things defeat this: a server that does not check ACLs
// (zookeeper.skipACL=yes), and a superuser who writes to a node of a lock. For
// such servers, and for servers without the digest scheme, there is
// handover=list: a waiter then trusts no write, and a node that is not watched
// yet is read before it is removed, because another session's node may have its
// name by then. A client with acl=creator and a certificate behaves as with
// handover=list, because the ACL of a queue names all logins of the client that
// made it.
//
// A client that may create nodes in a queue can forge a node that looks like a
// contender, and then release that node. So a write is trusted only if the
// queue was made with an ACL under which every user that may create nodes may
// also delete them, and so gains nothing by a forgery. In other queues, and if
// the ACL was changed later, a waiter lists the queue after each release.
//
// # When a session ends
//
// ZooKeeper's leader ends a session that it has not heard from for the session
// timeout. This process treats the session as ended earlier, by lease_margin.
// It counts from the sending time of a request that the leader is known to have
// seen. Only the answer to a Sync or to a write proves that; the answer to a
// ping or to a read proves nothing, because a server that has lost its leader
// goes on answering them.
//
// A session with nodes, of holders or of waiters, sends a write now and then,
// because a deposed leader goes on answering Syncs for a while.
//
// internal/zkconn/keepalive.go has the rule and its proof. The rule assumes
// that clocks run alike within the margin, and that the leader pings its
// followers in time within the margin.
//
// A server reports to its leader every half tick. The driver allows a quarter
// of the granted timeout for that or, if tick_time is stated, a little more
// than half of it, whichever is less. A tick_time smaller than the ensemble's
// tickTime is unsafe: two sessions may hold a lock at the same time, and the
// driver cannot detect it. An observer that is connected to a follower, with an
// observerMasterPort, reports half as often. For such an observer, the data
// source name must state the doubled tick, and session_timeout must be at least
// four ticks. For all other servers session_timeout must be at least two ticks,
// which is the least that a server grants by default.
//
// # Inside the package
//
// The driver has two layers. Package internal/zkconn is one ZooKeeper session
// over the client library go-zookeeper; its documentation says what
// go-zookeeper lacks. This package implements the interfaces of package driver
// with znodes:
//
//   - connector.go has the Driver and its Connector, dsn.go the data source
//     name, session.go the session, how it begins, and its errors for callers.
//   - create.go, delete.go, list.go, watch.go and value.go have the operations
//     of a session: delete.go also Remove and Replace, list.go also Read and
//     Walk. check.go looks at the servers.
//   - queue.go makes the node of a queue, remembers how nodes are made in it, and
//     starts its sequences over. acl.go has the secret of a session and all ACLs,
//     and decides which queues may be used and which writes are releases.
//   - ownnodes.go records the nodes of the session, and the requests in flight
//     that make or remove nodes. orphans.go looks for nodes whose Create was not
//     answered.
//   - node.go reads a node and the last line of its data. names.go maps names to
//     paths, and to the names of other libraries.
//
// Three properties of ZooKeeper explain much of the code. It does not return the
// zxid of a create, so a Create is a transaction with a write, whose answer has
// the zxid. It reuses the names of nodes in a queue that was removed and made
// again, so the driver compares tokens unless it is certain which node has a
// name. It cannot say whether a request was carried out whose reply was lost, so
// the driver looks for the node of such a Create until the store has answered.
package zkdriver
