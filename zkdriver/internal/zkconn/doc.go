// Package zkconn keeps one session of ZooKeeper and tells its process the truth
// about it: as long as the lease of a Conn has not ended, the store keeps the
// session and its nodes. The package stands on the client library go-zookeeper.
// It does not know what a queue is. Package zkdriver knows that, and says with
// Config.HasNodes whether the session has nodes.
//
// Error texts begin with "zkdriver:", because that is the name that users know.
//
// # What go-zookeeper does
//
// go-zookeeper encodes requests and decodes replies, sends the requests of all
// goroutines over one connection, and sets the watches again after a reconnect.
// It asks a HostProvider for a server, has a Dialer connect to it, and does so
// again whenever the connection breaks. When a server reports that the session
// has expired, it begins a new session on the same zk.Conn.
//
// # What this package adds
//
//   - A lease. go-zookeeper learns that a session has expired only from a
//     server, after a reconnect. Until then the process would act as the holder
//     of locks that the store has already given to another process. And a
//     server that has lost its leader goes on answering pings and reads. So the
//     Conn keeps a driver.Lease, counts it from requests that the leader is
//     known to have seen, and sends heartbeats of its own. keepalive.go has the
//     rule and the proof, schedule.go the arithmetic.
//   - One session, never a second one. The dialer reads each connect reply and
//     refuses any session but its own (dialer.go).
//   - A handshake that takes a bounded time. go-zookeeper allows a handshake
//     ten times the time that the session lives, so one server that hangs costs
//     the session. It can also block for good if a connection breaks while it
//     logs in again. So frameConn, a net.Conn between go-zookeeper and the
//     network, does the whole handshake, the logins included, within a short
//     deadline (frameconn.go).
//   - Dialing. go-zookeeper resolves names once. With one server it pauses a
//     second between attempts; with several it may dial a server that drops
//     connections a thousand times a second. The dialer resolves a name for each
//     attempt, goes through the addresses of a name as through the hosts, backs
//     off, and starts a second dial if the first one gets no answer (dialer.go,
//     dial.go). It adds TLS (dial.go).
//   - Watches that miss no change. go-zookeeper sets its watches again after a
//     reconnect. If a request overtakes them, a change can be missed. So
//     frameConn delays requests until the watches are set (frameconn.go).
//   - Checked replies. A reply of the wrong shape makes go-zookeeper panic or
//     allocate all memory. frameConn closes the connection instead
//     (protocol.go).
//   - Requests with a context. go-zookeeper takes no context: a request ends
//     only when it was answered or the connection breaks. Await runs a request
//     on a goroutine of its own and returns earlier if the context ends. A
//     closing Conn waits for these goroutines (requests.go).
//   - Every answer counts. All requests go through one function, which renews
//     the lease, and ends it when an answer says that the session is over
//     (requests.go). Unanswered, Permanent and Unimplemented say what an error
//     leaves open.
//   - A request directly after another one. AfterSend runs a function when a
//     certain transaction is written to the connection (requests.go).
//   - A close that is confirmed. go-zookeeper may lose the close request, and a
//     handshake under way may even bring the session back. Close forbids
//     further connections and, unless the server has confirmed the end, ends
//     the session on a new connection (close.go).
//
// conn.go has the Config, the Conn, Dial, and the goroutine that supervises a
// Conn; protocol.go also the numbers of the protocol, and texts from other
// programs made safe to print.
//
// A Conn uses its dialer and its keepalive, which know nothing of it. They use
// frameConns and the schedule. A frameConn calls back into the dialer through an
// interface of its own.
package zkconn
