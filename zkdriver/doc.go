// Package zkdriver keeps locks in ZooKeeper; it is tested with 3.8. A server older than 3.5.3
// has no containers and gets ordinary nodes in their place. Import the package for its side
// effect and open a client by its name:
//
//	import _ "github.com/dlock-go/dlock/zkdriver"
//
//	client, err := dlock.Open("zk", "zk://zk1:2181,zk2:2181,zk3:2181/locks?session_timeout=10s")
//
// # Data source names
//
//	zk://[user:password@]host[:port][,host[:port]...][/chroot][?parameter=value&...]
//
// The connect string of other ZooKeeper clients, host:port,host:port/chroot, works too. An IPv6
// address stands in brackets. In the user, the password and values, characters may be written
// as %XX, and have to where they mean something: / ? @ & : and %.
//
//	session_timeout  how long the store keeps a session that it does not hear of; the server may
//	                 grant more or less (10s)
//	connect_timeout  how long Connect tries (session_timeout, and 5s at least)
//	lease_margin     how much earlier than the store this process takes the session for
//	                 ended (a quarter of what the server grants; at most half)
//	tick_time        the ensemble's tickTime, as in 2s; lets locks survive longer outages where
//	                 session_timeout is five ticks or more, see below (not stated)
//	handover         release: the release of a lock grants it to the next waiter; list: the
//	                 next waiter lists the queue, one request more. See below (release)
//	acl              who may use the queues that are made here: open, everybody; creator, whoever the
//	                 server knows the connection as; digest, the user of the name (open)
//	tls              true: speak TLS, with the port of secureClientPort (false)
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name to look for in the server's certificate (the host)
//	sequence_limit   where sequences start over; for tests
//
// The TLS files are read when a session begins. A session that reconnects uses
// what was read then. A file that cannot be read, a key that does not fit its
// certificate, and a certificate that either side refuses are reported at once
// until the first session has begun. After that they are errors that may pass,
// so that files can be replaced while callers wait.
//
// # What is stored
//
// The queue stock/42 is the node /stock/42 below the chroot, a container, so
// that an unused one vanishes; a contender is an ephemeral sequential child.
// Nodes that are missing above it are made as ordinary nodes, which every
// client that may connect can read and add to. Users need CREATE, DELETE and
// READ on a queue, and READ on each other's contenders; ZooKeeper refuses
// nothing earlier, not even a wrong password.
//
// With acl=creator and acl=digest a queue that another user may alter is
// refused: that user could take its locks away. The node of stock/42 lies below
// the node of stock, so a lock stock belongs to one user together with the
// right to make locks below it. If the node stock was made for stock/42, the
// first Lock of stock gives it the ACL of a queue, if the same user has made
// it. From then on other users cannot make locks below stock; those that they
// have stay. A node stock that another user has made cannot be locked, and the
// error says so. Users who share a segment of their names should not lock that
// segment.
//
// The data of a queue's node that is there when a session first uses the queue
// is left as it is: a Create takes three requests then in place of one. Data
// that is written later is erased by the next Create, unless WRITE is taken
// away from the users of the node first: then a Create takes three requests as
// well.
//
// The sequences of a queue start over after two billion nodes. The queue is
// empty then, and its node is made again, with its ACL and its data. It is an
// ordinary node then, unless it is as this driver makes it. Where the ACL
// cannot be read for want of ADMIN, the error says so.
//
// The queue orders/order-1234567890 is the node /orders/order-1234567890~: a
// child that ends in ten or more digits is a contender of the queue, whichever
// program has made it, so a segment that ends so is stored with a tilde behind
// it, and one that ends in ten or more digits and tildes with one tilde more.
// The chroot is taken as it is.
//
// Characters beyond U+FFFF, which ZooKeeper does not take in a path, are refused with
// driver.ErrBadName.
//
// # Handing over
//
// An exclusive lock is given back by a transaction that writes to the contender's node and
// deletes it. Whoever watches the node is told of the write, and enters without asking anything.
// Any other end of the node is reported as a deletion, after which the queue is looked at.
//
// This is safe only if no other client can write to the node. So a session adds
// a login of its own, under a random secret of the digest scheme, to that of
// the data source name, and gives the permission to write to its contenders to
// this one only. Two things can break it: a server that does not check ACLs
// (zookeeper.skipACL=yes), and a superuser who writes to a node of a lock. For
// such servers, and for those where the digest scheme is off, there is
// handover=list, with which a waiter believes no write. It is what happens,
// too, with acl=creator and a client certificate, where the ACL of a queue
// names all logins of the client that made it.
//
// A client that may create nodes in a queue can forge a node that looks like a
// contender, and a release of it. So a write is believed only where the ACL
// with which the queue was made lets every user that may create nodes delete
// nodes, too: such a user gains nothing by a forgery. In other queues, and
// where the ACL was changed since, a waiter lists the queue after each release.
//
// # When a session ends
//
// ZooKeeper's leader ends a session of which it has not heard for the session
// timeout. This process does so earlier, by lease_margin, and counts from a
// request of which the leader is known to have heard. Only a sync or a write is
// proof of that, never a ping or a read, which a server that has lost its
// leader goes on answering. A session that may hold a lock sends a write now and
// then, because a leader that the others have deposed goes on answering a sync.
// A session whose nodes all wait for others sends no writes. Before one of its
// contenders hears that its wait is over, the answer to a recent write has to be
// there; the driver sends a write if the latest one is old.
// The rule is argued in heartbeat.go. It takes for granted that clocks run
// alike within the margin, and that the leader pings its followers in time
// within the margin.
//
// A server reports to its leader every half tick. The driver allows a quarter
// of the granted timeout for that, or a little more than half of tick_time if
// that is stated and less. A tick_time smaller than the ensemble's tickTime is
// unsafe: two sessions may hold a lock at a time. The driver cannot check it.
// An observer that is connected to a follower, with an observerMasterPort,
// reports half as often: state the doubled tick there, and use a
// session_timeout of at least four ticks. Elsewhere it has to be at least two
// ticks, which is the least that a server grants by default.
package zkdriver
