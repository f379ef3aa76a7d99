// Package zkdriver keeps locks in ZooKeeper. It is tested with ZooKeeper 3.8.
// Import it for its side effect and open a client by its name:
//
//	import _ "github.com/dlock-go/dlock/zkdriver"
//
//	client, err := dlock.Open("zk", "zk://zk1:2181,zk2:2181/locks?session_timeout=10s")
//
// Unlike the other drivers, it takes no client that the program already has: a
// *zk.Conn does not show when it sent the request that the server answered last,
// from which the lease counts.
//
// # Guarantees
//
// The guarantees of docs/use/guarantees.md hold if
//
//   - session_timeout is at least two of the servers' ticks, and tick_time, if
//     set, is not below their tickTime: see docs/operate/operating.md;
//   - the servers check ACLs and no superuser writes to a contender's node, or
//     handover=list;
//   - all clients of a lock have the same names.
//
// # Data source names
//
//	zk://[user:password@]host[:port][,host[:port]...][/chroot][?parameter=value&...]
//
// The scheme may be left out, as in connect strings of other clients. The
// default port is 2181. IPv6 addresses are in brackets. A name with several
// addresses counts as several hosts, and is resolved for each attempt to
// connect. Any character may be written as %XX; in the user, password and
// values, / ? @ & : and % must be where they would have another meaning. The
// parameters, with their defaults in parentheses:
//
//	session_timeout  how long the store keeps a session that it does not hear from;
//	                 the server may grant more or less (10s)
//	connect_timeout  how long Connect tries, at most 30s (session_timeout, but from
//	                 5s to 30s)
//	lease_margin     how much earlier than the store this process treats the session
//	                 as ended (a quarter of what the server grants; at most half)
//	tick_time        the servers' tickTime, such as 2s: locks survive longer outages
//	                 (not stated; at most half of what the server grants)
//	handover         release: the release of a lock grants it to the next waiter;
//	                 list: the next waiter lists the queue, one request more, and so
//	                 does the release of a lock held for less than 300 ms (release)
//	names            dlock, or the library whose programs share the locks: curator,
//	                 curator-mutex or kazoo (dlock)
//	acl              who may use the queues made here: open, every client; creator,
//	                 the user whom the server recognises; digest, the user of the
//	                 data source name (open)
//	tls              true: use TLS, with the port of secureClientPort (false)
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name expected in the server's certificate (the host)
//	sequence_limit   where sequences start over; for tests, and the same for all
//	                 clients
//
// docs/operate/operating.md helps to choose the times, docs/use/guarantees.md
// acl and handover, and docs/use/coming-from.md names.
//
// # Errors
//
// An error matches driver.ErrUnavailable if a retry may succeed. A refusal by an
// ACL matches fs.ErrPermission and zk.ErrNoAuth; ZooKeeper reports a wrong
// password only by such a refusal. A name that ZooKeeper refuses, such as one
// with a character beyond U+FFEF, matches driver.ErrBadName. With names, Create
// fails with [errors.ErrUnsupported] if a node ahead has another library's kind
// of name, and so do a Semaphore and, with curator-mutex, RLock.
// [Driver.OpenConnector] describes errors of TLS files. No error contains a
// password.
//
// # What is stored
//
// The queue stock/42 is the node /stock/42 below the chroot, a container, which
// the server removes when it is unused. Servers older than 3.5.3 have no
// containers and keep it. A contender is an ephemeral sequential child. Nodes
// above the queue are ordinary ones.
//
//   - A child that ends in ten or more digits is a contender. A part of a lock's
//     name that ends so, also with tildes behind the digits, is stored with one
//     more tilde.
//   - Data that another program has stored in the queue's node stay if they are
//     there when a session first uses the queue. Later ones are erased, unless
//     WRITE on the node is taken away from its users before.
//   - Sequences start over after two billion nodes, when the queue is empty. If
//     there are queues below it, contenders move to a child named "new
//     sequences" (with a no-break space), so that other libraries cannot use the
//     queue any more.
//   - Values are below the node "kept values" of the chroot (with a no-break
//     space). Clients with different chroots do not share them.
//
// # Permissions
//
// Users of a queue need CREATE, DELETE and READ on it, and READ on each other's
// contenders. Without WRITE on the queue, each lock takes more requests. The
// first SetValue needs CREATE on the chroot.
//
// With acl=creator and acl=digest, the driver refuses queues and values that
// another user may alter. The node of stock/42 is a child of the node of stock.
// The user who made it by locking stock/42 can lock stock, after which other
// users can make no more locks below stock. No other user can lock stock.
//
// # Inside the package
//
// A session has one connection, which package internal/zkconn keeps, with the
// lease. This package has the queues: create.go, delete.go, list.go, watch.go
// and value.go have a session's operations, queue.go makes the queues, acl.go
// decides which of them and which writes to trust, ownnodes.go and orphans.go
// record the session's nodes, and names.go maps names to paths. The page
// docs/contribute/design.md has the reasons.
package zkdriver
