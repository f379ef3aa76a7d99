// Package zkconn keeps one session of ZooKeeper on the client library
// go-zookeeper. As long as the lease of a Conn has not ended, the store keeps
// the session and its nodes. The queues are in package zkdriver, which says
// with Config.HasNodes whether the session has nodes.
//
// This package adds to go-zookeeper:
//
//   - A lease. go-zookeeper learns from a server alone that a session has
//     expired, and a server that has lost its leader goes on answering pings
//     and reads. So the Conn counts a driver.Lease from requests that the
//     leader is known to have seen. keepalive.go has the rule and the proof,
//     schedule.go the arithmetic.
//   - One session. go-zookeeper begins another one on the same zk.Conn, which
//     the dialer refuses (dialer.go).
//   - A handshake within a short deadline, the logins included. That of
//     go-zookeeper is ten times as long as the session, and a connection that
//     breaks while it logs in again can block it for good (frameconn.go).
//   - Dialing that resolves names for each attempt, goes through all addresses,
//     backs off, dials a second time if the first gets no answer, and speaks
//     TLS (dialer.go, dial.go).
//   - Watches that miss no change: requests after a reconnect are delayed until
//     the watches are set again (frameconn.go).
//   - Checked replies. One of the wrong shape makes go-zookeeper panic or
//     allocate all memory (protocol.go).
//   - Requests with a context, which each pass one function that renews the
//     lease, or ends it when an answer says that the session is over.
//     Unanswered, Permanent and Unimplemented say what an error leaves open
//     (requests.go).
//   - A close that is confirmed. go-zookeeper may lose the close request, and a
//     handshake under way may bring the session back (close.go).
//
// conn.go has the Config, the Conn, Dial, and the goroutine that supervises a
// Conn.
package zkconn
