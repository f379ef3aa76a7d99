// Package etcddriver stores locks in etcd. It is tested with etcd 3.4 and
// 3.7. Import the package for its side effect and open a client by its name:
//
//	import _ "github.com/dlock-go/dlock/contrib/etcddriver"
//
//	client, err := dlock.Open("etcd", "etcd://etcd1,etcd2,etcd3/locks")
//
// A program that has a *clientv3.Client already uses [NewConnector] with
// dlock.NewClient.
//
// # Guarantees
//
// A session is an etcd lease, and a node is a key attached to it, whose create
// revision is the fencing token. The guarantees of docs/use/guarantees.md hold
// under these conditions:
//
//   - The data source name names the servers themselves rather than an etcd
//     grpc-proxy. Such a proxy sends keep-alives on its own schedule, so that a
//     reply does not prove that etcd has renewed the lease since the session
//     asked.
//   - No leader is suspended for longer than the session timeout and resumes.
//     It may have leases revoked that its successor has renewed (etcd issue
//     15247), and until the session learns of that, there may be two holders.
//     The releases of etcd since March 2024 prevent most of this.
//   - etcd keeps what it has confirmed: no server runs with --unsafe-no-fsync,
//     and no old backup is restored. docs/operate/fail-over.md says how to
//     restore one.
//   - The clocks of the leader and of this process run at rates that differ by
//     less than a quarter. Setting a wall clock ends no session.
//
// A newly elected leader restarts every lease, so a dead session keeps its locks
// longer if leaders change. While etcd is out of space (NOSPACE), locks wait
// until an operator has made room; turn on --auto-compaction-retention, since
// each lock adds two revisions.
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
//	                 seconds up to 24h; etcd grants at least one and a half
//	                 election timeouts (10s)
//	tls              true: use TLS (false)
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name expected in the server's certificate (the host)
//
// # Errors
//
// An error matches driver.ErrUnavailable if a retry may succeed. A missing
// permission or a wrong password does not match it. [Driver.OpenConnector]
// describes errors of TLS files. No error contains the password.
//
// # Connections and requests
//
// A free lock takes two requests, its transaction and its release. A session
// that waits in a queue, or holds a lock for longer, follows the queue with an
// etcd watch. A hand-over between such sessions takes one request, or two if the
// waiter had more than 16 nodes ahead when it joined. Etcd sends the others a
// message for every change, so that locks with many contenders get slower: see
// docs/use/choosing-a-store.md.
//
// A session has one connection to each server in the data source name, for all
// requests, watches and heartbeats. A server needs one file descriptor per
// session. Requests are distributed over the servers in turn. A server that
// leaves a request unanswered gets a new connection, at the next address of its
// host if there are several, and is avoided for a minute if another one answers.
// So is a learner. Connections ignore HTTPS_PROXY.
//
// # Permissions
//
// A user needs the permission readwrite for all keys that begin with the prefix
// and a slash, such as "locks/". With it, the user can take away any lock there.
//
// docs/operate/operating.md shows and frees locks with etcdctl. Clients in other
// languages take part by the same keys: see docs/contribute/other-languages.md.
package etcddriver
