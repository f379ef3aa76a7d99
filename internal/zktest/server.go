package zktest

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/testenv"
)

var zooKeeper = testenv.Store{
	Dependency: testenv.Dependency{
		Name:     "a real ZooKeeper",
		Variable: "DLOCK_TEST_ZOOKEEPER",
		Install: "`make test` installs it; by hand: " +
			"apt-get install -y --no-install-recommends zookeeper default-jre-headless, " +
			"or Java on the PATH and ZOOKEEPER_HOME pointing at an unpacked release of ZooKeeper",
	},
	Package: "zktest",
	Find: func() error {
		_, err := installed()
		return err
	},
	Ports: 4, // for clients, clients with TLS, followers, and elections
}

// See the methods of [testenv.Store].
var (
	Require      = zooKeeper.Require
	RequireClock = zooKeeper.RequireClock
	Main         = zooKeeper.Main
)

// RequireSlowDisk skips or fails the test if [WithSlowDisk] would not work.
func RequireSlowDisk(t testing.TB) {
	t.Helper()
	zooKeeper.RequireCompiled(t, "a slow disk", testenv.CheckSlowDisk())
}

// RequirePeer ends the test if err, as returned by [Curator] or [Kazoo], is not
// nil. The test fails if DLOCK_TEST_ZOOKEEPER=require, and is skipped
// otherwise.
func RequirePeer(t testing.TB, err error) {
	t.Helper()
	peer := zooKeeper.Dependency
	peer.Name, peer.Install = "a lock library of others", "`make test` installs it"
	peer.Require(t, err)
}

// Option configures a server.
type Option func(*settings)

type settings struct {
	config   map[string]string
	jvm      []string
	tls      bool
	slowDisk bool
	clock    bool
	// ready is [Server.serving], or [Server.listening] in an ensemble.
	ready func(*Server) bool
}

func newSettings(config map[string]string, opts []Option) *settings {
	s := &settings{jvm: []string{containerCheck(24 * time.Hour)}, ready: (*Server).serving, config: map[string]string{
		"clientPortAddress":      "127.0.0.1",
		"tickTime":               "500",
		"minSessionTimeout":      "1000",
		"maxSessionTimeout":      "600000",
		"maxClientCnxns":         "0",
		"admin.enableServer":     "false",
		"4lw.commands.whitelist": "*",
	}}
	maps.Copy(s.config, config)
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// WithConfig adds or replaces lines of the configuration file. It cannot change
// the client port and the data directory.
func WithConfig(lines map[string]string) Option {
	return func(s *settings) { maps.Copy(s.config, lines) }
}

// WithJVM adds flags for the Java virtual machine, such as
// -Dzookeeper.extendedTypesEnabled=true.
func WithJVM(flags ...string) Option {
	return func(s *settings) { s.jvm = append(s.jvm, flags...) }
}

// WithContainerCheck makes the server remove empty containers at the given
// interval. The default is once a day, that is, never during a test: queues are
// containers, and recreating one takes requests that tests don't expect.
func WithContainerCheck(every time.Duration) Option { return WithJVM(containerCheck(every)) }

func containerCheck(every time.Duration) string {
	return fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", every.Milliseconds())
}

// WithClock enables [testenv.Server.SetClock]. Call [RequireClock] first.
func WithClock() Option {
	return func(s *settings) { s.clock = true }
}

// WithSlowDisk enables [testenv.Server.SetDiskDelay]. Call [RequireSlowDisk]
// first.
func WithSlowDisk() Option {
	return func(s *settings) { s.slowDisk = true }
}

// WithBacklog sets clientPortListenBacklog, the maximum number of connections
// that the kernel queues until the server accepts them. The default is 50.
func WithBacklog(n int) Option {
	return WithConfig(map[string]string{"clientPortListenBacklog": strconv.Itoa(n)})
}

// ClientAuth says whether a server requires client certificates.
type ClientAuth string

const (
	NoClientCert    ClientAuth = "none"
	NeedsClientCert ClientAuth = "need"
)

// WithTLS adds a TLS port, see [Server.SecureAddr]. The server presents the
// given certificate there, and trusts certificates signed by certs.CA.
func WithTLS(certs *testenv.Certs, server testenv.Pair, auth ClientAuth) Option {
	return func(s *settings) {
		s.tls = true
		maps.Copy(s.config, map[string]string{
			"secureClientPortAddress": "127.0.0.1",
			"serverCnxnFactory":       "org.apache.zookeeper.server.NettyServerCnxnFactory",
			"ssl.keyStore.location":   server.Both,
			"ssl.trustStore.location": certs.CA,
			"ssl.clientAuth":          string(auth),
			// Otherwise the server would check that the client's certificate names
			// the client's address.
			"ssl.hostnameVerification": "false",
		})
	}
}

// Server is a ZooKeeper server. Its methods fail the test on an error.
//
// Session timeouts range from 1s to 10 minutes, and a tick is 500ms.
// Connections per client are unlimited. Empty containers are kept, see
// [WithContainerCheck]. All four-letter words are enabled.
type Server struct {
	testenv.Server
	*words
}

// Start starts a server and waits until it is ready. It is killed and its
// directory removed when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	w, settings := new(words), newSettings(nil, opts)
	return &Server{zooKeeper.Start(t, func(s *testenv.Server, _ []*testenv.Server) ([]string, func() bool) {
		return settings.configure(&Server{*s, w})
	}), w}
}

var wordsToShared words

// Shared returns the server shared by all tests of a binary, and starts it on
// the first call. Tests must use separate paths (see [Server.Chroot]), must not
// stop it, and must not read its counters while other tests run.
func Shared(t testing.TB) *Server {
	t.Helper()
	return &Server{zooKeeper.Shared(t, func(s *testenv.Server, _ []*testenv.Server) ([]string, func() bool) {
		return newSettings(nil, nil).configure(&Server{*s, &wordsToShared})
	}), &wordsToShared}
}

// configure disables Java's optimizing compiler, which does not pay off in a
// short test.
func (c *settings) configure(s *Server) (command []string, ready func() bool) {
	home, err := installed()
	s.Must(err)
	file := maps.Clone(c.config)
	file["clientPort"], file["dataDir"] = strconv.Itoa(s.Port(0)), s.File("data")
	if c.tls {
		file["secureClientPort"] = strconv.Itoa(s.Port(1))
	}
	var lines strings.Builder
	for _, key := range slices.Sorted(maps.Keys(file)) {
		fmt.Fprintf(&lines, "%s=%s\n", key, file[key])
	}
	if c.clock {
		command = s.ClockCommand()
	}
	if c.slowDisk {
		command = append(command, s.SlowDiskCommand()...)
	}
	command = append(command, home.java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:+UseSerialGC", superuserFlag(),
		"-D"+tmpdirProperty+s.Dir(),
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dlogback.configurationFile="+s.Write("logback.xml", logback),
		"-Dlog4j.configuration=file:"+s.Write("log4j.properties", log4j))
	command = append(command, c.jvm...)
	command = append(command, "-cp", home.classPath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", s.Write("zoo.cfg", lines.String()))
	return command, func() bool { return c.ready(s) && (!c.tls || s.Accepts(1)) && s.startCounting() == nil }
}

const (
	logback = `<configuration>
<appender name="console" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %level %logger %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="console"/></root>
</configuration>
`
	log4j = `log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c %m%n
`
)

// serving compares the data directory, because another server may answer on the
// same port.
func (s *Server) serving() bool {
	conf, err := s.poll("conf")
	return err == nil && strings.Contains(conf, s.Dir()+string(filepath.Separator))
}

// listening uses "envi", because a server without a quorum does not answer
// "conf".
func (s *Server) listening() bool {
	envi, err := s.poll("envi")
	return err == nil && strings.Contains(envi, tmpdirProperty+s.Dir()+"\n")
}

// tmpdirProperty is the Java property that identifies a server.
const tmpdirProperty = "java.io.tmpdir="

// SecureAddr returns the address of the client port with TLS, as host:port. It
// requires [WithTLS].
func (s *Server) SecureAddr() string { return testenv.Loopback(s.Port(1)) }

// Chroot creates a unique path, such as /t17. It is removed with everything
// below it when the test ends.
func (s *Server) Chroot(t testing.TB) string {
	t.Helper()
	root := s.Unique("/t")
	s.admin(t, func(conn *zk.Conn) error {
		_, err := conn.Create(root, nil, 0, zk.WorldACL(zk.PermAll))
		if errors.Is(err, zk.ErrNodeExists) { // from an attempt whose reply was lost
			return nil
		}
		return err
	})
	t.Cleanup(func() {
		s.admin(t, func(conn *zk.Conn) error { return removeBusyTree(conn, root) })
	})
	return root
}

// removeBusyTree removes a tree. It retries if a client adds nodes meanwhile.
func removeBusyTree(conn *zk.Conn, root string) (err error) {
	for range 100 {
		if err = removeTree(conn, root); !errors.Is(err, zk.ErrNotEmpty) {
			return err
		}
	}
	return err
}

const maxBacklog = 4096

// FillAcceptQueue pauses the server and opens connections until its accept
// queue is full. The kernel then drops further attempts to connect, so that
// clients get no answer, not even a refusal. Established connections stay open.
// The function end is idempotent. It resumes the server and closes the
// connections opened here.
//
// [WithBacklog] makes the queue shorter and thus FillAcceptQueue faster.
func (s *Server) FillAcceptQueue() (end func()) {
	s.T.Helper()
	s.Pause()
	var waiting []net.Conn
	failed := 0
	// The server may accept connections until the pause takes effect.
	for len(waiting) < maxBacklog && failed < 2 {
		conn, err := net.DialTimeout("tcp", s.Addr(), 300*time.Millisecond)
		if err != nil {
			failed++
			continue
		}
		failed = 0
		waiting = append(waiting, conn)
	}
	end = sync.OnceFunc(func() {
		for _, conn := range waiting {
			conn.Close()
		}
		if !s.Down() {
			s.Resume()
		}
	})
	s.T.Cleanup(end)
	if failed < 2 {
		s.T.Fatalf("zktest: %d connections do not fill the accept queue", len(waiting))
	}
	return end
}
