// Package etcddriver stores locks in etcd. It is tested with etcd 3.4 and 3.7.
// Import it for its side effect and open a client by its name:
//
//	client, err := dlock.Open("etcd", "etcd://etcd1,etcd2,etcd3/locks")
//
// A program that has a *clientv3.Client already uses [NewConnector] with
// dlock.NewClient. docs/stores/etcd.md is about times, servers and rights.
//
// A session is an etcd lease, and a node is a key attached to it, whose create
// revision is the fencing token. The guarantees of docs/use/guarantees.md hold
// under these conditions:
//
//   - The data source name names the servers themselves. An etcd grpc-proxy
//     sends keep-alives on its own schedule, so a reply does not prove that etcd
//     has renewed the lease since the session asked.
//   - No leader is suspended for longer than the session timeout and resumes. It
//     may have leases revoked that its successor has renewed (etcd issue 15247),
//     which releases since March 2024 prevent in most cases.
//   - etcd keeps what it has confirmed: no server runs with --unsafe-no-fsync,
//     and no old backup is restored.
//   - The clocks of the leader and of this process run at rates that differ by
//     less than a quarter. Setting a wall clock ends no session.
//
// # Data source names
//
//	etcd://[user[:password]@]host[:port][,host[:port]...][/prefix][?parameter=value&...]
//
// The default port is 2379, the default prefix of all keys "dlock". IPv6
// addresses are in brackets. Any character of the user, password and values may
// be written as %XX; / ? @ : , and % must be in user and password, & in a value.
// The parameters, with their defaults in parentheses:
//
//	session_timeout  how long etcd keeps a session without heartbeats, in whole
//	                 seconds up to 24h; etcd grants at least one and a half
//	                 election timeouts (10s)
//	tls              true: use TLS (false)
//	password_file    file with the password, read for each login
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name expected in the server's certificate (the host)
//
// # Errors
//
// An error matches driver.ErrUnavailable if a retry may succeed; a missing
// permission does not. [Driver.OpenConnector] describes errors of passwords and
// TLS files. No error contains the password.
//
// # Connections
//
// A session has one connection to each server for all requests, watches and
// heartbeats, and distributes requests over the servers in turn. A server that
// leaves a request unanswered gets a new connection, at the next address of its
// host if there are several, and is avoided for a minute if another one answers.
// So is a learner. Connections ignore HTTPS_PROXY.
package etcddriver
