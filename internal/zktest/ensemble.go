package zktest

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Ensemble is a group of servers that form a quorum. The servers connect to
// each other only through proxies, so that a test can cut them off from each
// other while their clients still reach them.
type Ensemble struct {
	// Servers may be stopped, paused and restarted individually.
	Servers []*Server

	links [][]*peerLink // links[i][j] connects server i to server j
}

type peerLink struct{ quorum, election *testenv.Proxy }

// Indices of the ports on which a server accepts connections from its peers.
const quorumPort, electionPort = 2, 3

// StartEnsemble starts n servers, or three if n is 0, and waits until all have
// joined the quorum and serve clients. They are killed and their directories
// removed when the test ends.
//
// A tick is 500ms, initLimit is 6 ticks and syncLimit is 10 ticks. A follower
// that is cut off keeps answering for syncLimit ticks, which [WithConfig] can
// change.
func StartEnsemble(t testing.TB, n int, opts ...Option) *Ensemble {
	t.Helper()
	if n == 0 {
		n = 3
	}
	e := &Ensemble{}
	t.Cleanup(e.close)
	zooKeeper.StartAll(t, n, func(s *testenv.Server, all []*testenv.Server) ([]string, func() bool) {
		i := slices.Index(all, s)
		if i == 0 {
			e.close() // closes the proxies of an earlier attempt
			e.Servers = nil
			s.Must(e.connect(all))
		}
		e.Servers = append(e.Servers, &Server{*s, new(words)})
		s.Must(os.Mkdir(s.File("data"), 0o700))
		s.Write("data/myid", id(i))
		settings := newSettings(map[string]string{"initLimit": "6", "syncLimit": "10", "reconfigEnabled": "false"}, opts)
		maps.Copy(settings.config, e.view(i, s))
		settings.ready = (*Server).listening
		return settings.configure(e.Servers[i])
	})
	e.WaitQuorum(t)
	return e
}

func (e *Ensemble) connect(all []*testenv.Server) error {
	e.links = make([][]*peerLink, len(all))
	for i := range all {
		e.links[i] = make([]*peerLink, len(all))
		for j, to := range all {
			if i == j {
				continue
			}
			link, err := newPeerLink(to)
			if err != nil {
				return err
			}
			e.links[i][j] = link
		}
	}
	e.serveLinks()
	return nil
}

func newPeerLink(to *testenv.Server) (*peerLink, error) {
	quorum, err := testenv.ListenProxy(testenv.Loopback(to.Port(quorumPort)))
	if err != nil {
		return nil, err
	}
	election, err := testenv.ListenProxy(testenv.Loopback(to.Port(electionPort)))
	if err != nil {
		quorum.Close()
		return nil, err
	}
	// A follower that dials too early would otherwise start another election.
	quorum.DialAgain()
	return &peerLink{quorum, election}, nil
}

// serveLinks makes the proxies accept connections. In election connections, it
// replaces the dialer's address, so that a server dials back through a proxy.
func (e *Ensemble) serveLinks() {
	for i := range e.links {
		for j, link := range e.links[i] {
			if link == nil {
				continue
			}
			link.quorum.Serve(nil)
			dialBack := e.links[j][i].election.Addr()
			link.election.Serve(func() (requests, replies testenv.FrameReader) {
				return greetingFirst(dialBack), testenv.ReadBytes
			})
		}
	}
}

// greetingFirst returns a reader that replaces the dialer's address in the
// first message.
func greetingFirst(addr string) testenv.FrameReader {
	first := true
	return func(r io.Reader) (testenv.Frame, error) {
		if !first {
			return testenv.ReadBytes(r)
		}
		first = false
		greeting := make([]byte, greetingSize)
		n, err := io.ReadFull(r, greeting)
		return testenv.Frame{Bytes: readdress(greeting[:n], addr)}, err
	}
}

// beforeAddress and greetingSize describe the first message of an election
// connection, as in QuorumCnxManager.
const (
	beforeAddress = 8 + 8 + 4 // version, dialer's ID, length of the address
	greetingSize  = beforeAddress + len("127.0.0.1:12345")
)

func readdress(greeting []byte, addr string) []byte {
	if len(greeting) < greetingSize {
		return greeting // the connection was closed early
	}
	return append(greeting[:beforeAddress:beforeAddress], addr...)
}

// view returns the server.* lines of server i, which lead through proxies.
func (e *Ensemble) view(i int, self *testenv.Server) map[string]string {
	lines := map[string]string{"server." + id(i): fmt.Sprintf("127.0.0.1:%d:%d", self.Port(quorumPort), self.Port(electionPort))}
	for j, link := range e.links[i] {
		if link != nil {
			lines["server."+id(j)] = "127.0.0.1:" + link.quorum.Port() + ":" + link.election.Port()
		}
	}
	return lines
}

func id(i int) string { return strconv.Itoa(i + 1) }

// Addrs returns the client addresses of all servers.
func (e *Ensemble) Addrs() []string {
	var addrs []string
	for _, s := range e.Servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// CutServer cuts server i off from all other servers until
// [Ensemble.HealServer]. Connections stay open but nothing passes. Clients
// still reach the server.
func (e *Ensemble) CutServer(i int) { e.eachLink(i, (*testenv.Proxy).Cut) }

// HealServer ends [Ensemble.CutServer]. It does not wait for the server to
// rejoin the quorum, see [Ensemble.WaitQuorum].
func (e *Ensemble) HealServer(i int) { e.eachLink(i, (*testenv.Proxy).Heal) }

// CutLink cuts servers i and j off from each other. Their connections stay open
// but nothing passes. Both still reach the other servers.
func (e *Ensemble) CutLink(i, j int) {
	e.links[i][j].each((*testenv.Proxy).Cut)
	e.links[j][i].each((*testenv.Proxy).Cut)
}

// CutOneWay stops everything that one server sends to another. The opposite
// direction still works, except that no new connection can be made.
func (e *Ensemble) CutOneWay(from, to int) {
	e.links[from][to].each(func(p *testenv.Proxy) { p.CutOneWay(testenv.ToServer) })
	e.links[to][from].each(func(p *testenv.Proxy) { p.CutOneWay(testenv.ToClient) })
}

// SetDelay delays by d everything that servers send each other from now on.
func (e *Ensemble) SetDelay(d time.Duration) {
	e.eachProxy(func(p *testenv.Proxy) { p.SetDelay(d) })
}

// Heal ends all cuts and delays between servers.
func (e *Ensemble) Heal() {
	e.eachProxy(func(p *testenv.Proxy) {
		p.Heal()
		p.SetDelay(0)
	})
}

func (e *Ensemble) eachProxy(f func(*testenv.Proxy)) {
	for _, row := range e.links {
		for _, link := range row {
			link.each(f)
		}
	}
}

func (e *Ensemble) eachLink(i int, f func(*testenv.Proxy)) {
	for j := range e.links {
		e.links[i][j].each(f)
		e.links[j][i].each(f)
	}
}

func (l *peerLink) each(f func(*testenv.Proxy)) {
	if l != nil {
		f(l.quorum)
		f(l.election)
	}
}

// Leader waits until a majority follows a leader, and returns its index.
func (e *Ensemble) Leader(t testing.TB) (leader int) {
	t.Helper()
	e.wait(t, "a leader", func(modes map[string][]int) bool {
		if len(modes["leader"]) > 0 {
			leader = modes["leader"][len(modes["leader"])-1]
		}
		return len(modes["leader"]) > 0 && 2*(len(modes["leader"])+len(modes["follower"])) > len(e.Servers)
	})
	return leader
}

// Follower waits for a leader and returns the index of its first follower.
func (e *Ensemble) Follower(t testing.TB) (follower int) {
	t.Helper()
	e.wait(t, "a follower", func(modes map[string][]int) bool {
		if len(modes["follower"]) > 0 {
			follower = modes["follower"][0]
		}
		return len(modes["leader"]) == 1 && len(modes["follower"]) > 0
	})
	return follower
}

// WaitQuorum waits until one server leads, all others that are not down follow
// it, and all have caught up.
func (e *Ensemble) WaitQuorum(t testing.TB) {
	t.Helper()
	e.wait(t, "a quorum of all running servers", func(modes map[string][]int) bool {
		leads, following := modes["leader"], len(modes["follower"])
		return len(leads) == 1 && 1+following+len(modes["down"]) == len(e.Servers) &&
			2*(following+1) > len(e.Servers) && e.Servers[leads[0]].syncedFollowers() == following
	})
}

// electedWithin is generous, because servers on a busy machine may lose their
// leader repeatedly.
const electedWithin = 5 * time.Minute

// wait polls until enough returns true. modes has the servers' indices by mode:
// "leader", "follower", "down", or a text that begins with noAnswer.
func (e *Ensemble) wait(t testing.TB, what string, enough func(modes map[string][]int) bool) {
	t.Helper()
	var modes map[string][]int
	for deadline := time.Now().Add(electedWithin); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		modes = make(map[string][]int)
		for i, s := range e.Servers {
			mode := s.mode()
			modes[mode] = append(modes[mode], i)
		}
		if enough(modes) {
			return
		}
	}
	t.Fatalf("zktest: no sign of %s within %v: the servers are %v", what, electedWithin, modes)
}

// noAnswer begins the mode of a server that did not answer in time, but may
// still be the leader.
const noAnswer = "no answer: "

func (s *Server) mode() string {
	if s.Down() {
		return "down"
	}
	answer, err := s.poll("srvr")
	if err != nil {
		return noAnswer + err.Error()
	}
	for line := range strings.Lines(answer) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode)
		}
	}
	return strings.TrimSpace(answer)
}

func (s *Server) syncedFollowers() int {
	numbers, err := s.mntr()
	if err != nil {
		return -1
	}
	return int(numbers["zk_synced_followers"])
}

func (e *Ensemble) close() { e.eachProxy((*testenv.Proxy).Close) }
