// Package zkdriver keeps locks in ZooKeeper. It is tested with ZooKeeper 3.8.
// Import it, and open a client by its name:
//
//	client, err := dlock.Open("zk", "zk://zk1,zk2,zk3/locks?session_timeout=10s")
//
// It takes no *zk.Conn, which does not show when it sent the request answered
// last. docs/stores/zookeeper.md is about times, servers and rights.
//
// The guarantees of docs/use/guarantees.md hold if session_timeout is at least
// two ticks of the servers; tick_time, if set, is not below tickTime; servers
// check ACLs and no superuser writes to a contender's node, or handover=list;
// and all clients of a lock have the same names.
//
// # Data source names
//
//	zk://[user[:password]@]host[:port][,host[:port]...][/chroot][?parameter=value&...]
//
// The scheme may be left out; the default port is 2181. IPv6 addresses are in
// brackets. Any character may be written as %XX; / ? @ & : and % must be, where
// they would mean something else. Parameters, with their defaults:
//
//	session_timeout  how long the store keeps a silent session (10s)
//	connect_timeout  how long Connect tries (session_timeout, but from 5s to 30s)
//	lease_margin     how much earlier than the store the process ends the session
//	                 (a quarter of what the server grants)
//	tick_time        the servers' tickTime (not stated). Neither may be over half of
//	                 what the server grants
//	handover         release: a release grants the lock to the next waiter; list:
//	                 the next waiter lists the queue, as does the release of a lock
//	                 held for less than 300 ms, a request more (release)
//	names            dlock, or whose locks to share: curator, curator-mutex, kazoo
//	                 (dlock)
//	acl              who may use the queues made here: open, creator, digest (open)
//	password_file    file with the password, read for each session: a new one
//	                 makes another user
//	tls              true: use TLS, with the port of secureClientPort (false)
//	tls_ca           certificates to trust, PEM (the system's)
//	tls_cert         the client's certificate, PEM
//	tls_key          its key, PEM
//	tls_server_name  the name in the server's certificate (the host)
//	sequence_limit   where sequences start over; for tests
//
// # Errors
//
// An error matches driver.ErrUnavailable if a retry may succeed. A refusal by an
// ACL, and so a wrong password, matches fs.ErrPermission and zk.ErrNoAuth. A
// name that ZooKeeper refuses, as with a character beyond U+FFEF, matches
// driver.ErrBadName; a call for which another library has no name,
// [errors.ErrUnsupported].
//
// # What is stored
//
// The queue stock/42 is the container /stock/42 below the chroot; its ephemeral
// sequential children are contenders. A part of a lock's name that ends in ten
// or more digits, perhaps with tildes behind, gets one more tilde. Other data in
// the container stay only if they are there at a session's first use.
//
// After two billion nodes, an empty queue starts over, in a child "new sequences"
// if it has queues below, which other libraries cannot use. Values are below
// "kept values" in the chroot. Both names have a no-break space.
package zkdriver
