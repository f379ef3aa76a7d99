package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/redistest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(leakcheck.After(redistest.Main(m)))
}

// silent is a go-redis logger that only counts failed dials.
type silent struct{}

var dialsLogged atomic.Int64

func (silent) Printf(_ context.Context, format string, _ ...any) {
	if strings.Contains(format, "failed to dial") {
		dialsLogged.Add(1)
	}
}

var namespaces atomic.Int64

func newNamespace() string { return fmt.Sprintf("test-%d", namespaces.Add(1)) }

// asNew adds the parameter that skips the grace period if the store is empty.
func asNew(dsn string) string {
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	return dsn + separator + "empty_is_new=true"
}

var scriptOps = newScriptOps()

func newScriptOps() map[string]faults.Op {
	ops := make(map[string]faults.Op)
	for op, name := range map[faults.Op]string{
		faults.OpConnect: "open", faults.OpCreate: "create", faults.OpList: "look", faults.OpWatch: "watch",
		faults.OpWatchQueue: "watchqueue", faults.OpDelete: "delete", faults.OpReplace: "replace", faults.OpRead: "read",
		faults.OpWalk: "walk", faults.OpRemove: "remove", faults.OpSetValue: "setvalue", faults.OpValue: "value",
		faults.OpClose: "close", faults.OpCleanUp: "cancel", faults.OpHeartbeat: "beat",
	} {
		s := script(name)
		ops[s.Hash()], ops[source(name)] = op, op
	}
	return ops
}

const (
	otherCommand = -1
	ownWatch     = -2 // a watch of the session's own node only
)

func classify(command []string) int32 {
	if len(command) > 1 {
		switch op, ok := scriptOps[command[1]]; {
		case op == faults.OpWatch && len(command) == 8: // no nodes ahead
			return ownWatch
		case ok:
			return int32(op)
		}
	}
	return otherCommand
}

func is(op faults.Op) func(int32) bool {
	return func(found int32) bool {
		return found == int32(op) || op == faults.OpWatch && found == ownWatch
	}
}

// store is a connector that routes each session through its own proxy.
type store struct {
	t         *testing.T
	server    *redistest.Server
	namespace string
	params    string

	// existing opens the store with NewConnector and a go-redis client.
	existing bool

	// graced makes sessions wait for the grace period even if the store is
	// empty.
	graced bool

	// keepProxies prevents the reuse of proxies whose sessions have ended.
	keepProxies bool

	mu      sync.Mutex
	proxies map[driver.Session]*redistest.Proxy
}

func newStore(t *testing.T, server *redistest.Server, params string) *store {
	loadScripts(server)
	return &store{t: t, server: server, namespace: newNamespace(), params: params, proxies: make(map[driver.Session]*redistest.Proxy)}
}

// loadScripts makes sure that no script's first run needs a second request.
func loadScripts(server *redistest.Server) {
	for name := range scriptOps {
		if len(name) > 40 {
			server.Do("SCRIPT", "LOAD", name)
		}
	}
}

func (s *store) dsn(addr string) string {
	return "redis://" + addr + "?empty_is_new=" + strconv.FormatBool(!s.graced) + "&namespace=" + s.namespace + "&" + s.params
}

func inside(s driver.Session) *backend { return s.(*session.Session).Store().(*backend) }

func beat(ctx context.Context, s driver.Session) error {
	_, err := inside(s).Beat(ctx)
	return err
}

func (s *store) key(name string) string { return "{" + s.namespace + "}:" + name }

func (s *store) Check(ctx context.Context) ([]driver.Finding, error) {
	c, err := Driver{}.OpenConnector(s.dsn(s.server.Addr()))
	if err != nil {
		return nil, err
	}
	return c.(driver.Checker).Check(ctx)
}

func (s *store) Connect(ctx context.Context) (driver.Session, error) {
	p := s.freeProxy()
	c, err := s.connector(p.Addr())
	if err != nil {
		return nil, err
	}
	made, err := c.Connect(ctx)
	if err == nil {
		s.mu.Lock()
		s.proxies[made] = p
		s.mu.Unlock()
		s.t.Cleanup(func() { _ = made.Close() }) // runs before the proxy is closed
	}
	return made, err
}

func (s *store) session() driver.Session {
	s.t.Helper()
	made, err := s.Connect(s.t.Context())
	require.NoError(s.t, err)
	return made
}

func create(t *testing.T, s driver.Session, queue string) driver.Joined {
	t.Helper()
	joined, err := s.Create(t.Context(), queue, spec())
	require.NoError(t, err)
	return joined
}

func (s *store) connector(addr string) (driver.Connector, error) {
	if !s.existing {
		return Driver{}.OpenConnector(s.dsn(addr))
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close() // each session opens its own connections
	return NewConnector(client, Options{EmptyIsNew: true, SessionTimeout: conformanceTimeout, Namespace: s.namespace})
}

// freeProxy reuses a closed session's proxy, because some tests count
// goroutines.
func (s *store) freeProxy() *redistest.Proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, p := range s.proxies {
		if inside(old).link.life.Err() != nil && !s.keepProxies {
			delete(s.proxies, old)
			p.DropConnections()
			p.ForgetFaults()
			p.Heal()
			p.SetDelay(0)
			return p
		}
	}
	return redistest.NewProxy(s.t, s.server.Addr(), classify)
}

// join connects and creates a node. It retries if the session ends meanwhile.
func (s *store) join(t *testing.T, queue string) (driver.Session, driver.Joined) {
	t.Helper()
	for {
		made, err := s.Connect(t.Context())
		require.True(t, err == nil || errors.Is(err, driver.ErrUnavailable), err)
		if err != nil {
			continue
		}
		joined, err := made.Create(t.Context(), queue, spec())
		if made.Err() == nil {
			require.NoError(t, err)
			return made, joined
		}
		_ = made.Close()
	}
}

func (s *store) proxy(of driver.Session) *redistest.Proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proxies[of]
}

func (s *store) eval(t *testing.T, body string, args ...string) any {
	t.Helper()
	v, err := s.server.TryDo(append([]string{"EVAL", text("first") + text("common") + body, "1", s.key("seq")}, args...)...)
	require.NoError(t, err)
	return v
}

func (s *store) drop(t *testing.T, id string) {
	t.Helper()
	s.server.Do("ZADD", s.key("sessions"), "XX", "0", id)
	s.eval(t, "expire() return 1", "")
}
