package endtoend_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"net/url"
	"reflect"
	"runtime/pprof"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
	_ "github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
	"github.com/dlock-go/dlock/zkdriver"
)

// passwords contain a word to search for, and some need escaping.
var passwords = []string{"XYZZYmarker", "XYZZY/m@rk:er?&%#=+ \u00e9", "XYZZY%2F"}

// forms returns every text that would reveal a password, in lower case, by
// description.
func forms(user, password string) map[string]string {
	login := user + ":" + password
	all := map[string]string{}
	for name, s := range map[string]string{"password": password, "login": login} {
		sum1, sum256, sum5 := sha1.Sum([]byte(s)), sha256.Sum256([]byte(s)), md5.Sum([]byte(s))
		for form, text := range map[string]string{
			"itself": s, "in a path": url.PathEscape(s), "in a query": url.QueryEscape(s), "escaped throughout": percent(s), "quoted": strings.Trim(fmt.Sprintf("%q", s), `"`),
			"in base64": base64.RawStdEncoding.EncodeToString([]byte(s)), "in base64 for URLs": base64.RawURLEncoding.EncodeToString([]byte(s)),
			"in hex": hex.EncodeToString([]byte(s)), "in numbers": strings.Trim(fmt.Sprint([]byte(s)), "[]"), "SHA-1 in base64": base64.RawStdEncoding.EncodeToString(sum1[:]),
			"SHA-1 in hex": hex.EncodeToString(sum1[:]), "SHA-256 in hex": hex.EncodeToString(sum256[:]), "MD5 in hex": hex.EncodeToString(sum5[:]),
		} {
			all[name+" "+form] = strings.ToLower(text)
		}
	}
	all["the beginning"] = "xyzzy" // common prefix of all passwords in this file
	return all
}

func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// recorder collects everything that a program might print, and searches it for
// passwords.
type recorder struct {
	t     testing.TB
	forms map[string]string
	sharedBuffer
	digest string // of user and password, as in ACLs
}

func (e *recorder) record(what, text string) {
	e.t.Helper()
	text = strings.ToLower(text)
	for form, secret := range e.forms {
		if strings.Contains(text, secret) {
			assert.Fail(e.t, "the password shows", "%s: %s, in %.300q", what, form, text)
		}
	}
}

func (e *recorder) value(what string, v any) {
	e.t.Helper()
	formats := []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"}
	if strings.HasSuffix(what, "client") || what == "mutex" || strings.HasPrefix(what, "live ") {
		formats = formats[:3] // others follow pointers, and race with the client
	}
	for _, format := range formats {
		e.record(what+" "+format, fmt.Sprintf(format, v))
	}
	if b, err := json.Marshal(v); err == nil {
		e.record(what+" as JSON", string(b))
	}
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "v", v)
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "v", v)
	log.New(&b, "", 0).Print(v)
	e.record(what+" logged", b.String())
}

func (e *recorder) err(what string, err error) {
	e.t.Helper()
	if err == nil {
		return
	}
	e.value("error of "+what, err)
	for _, inner := range unwrap(err) {
		e.err(what, inner)
	}
}

func unwrap(err error) []error {
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		return []error{u.Unwrap()}
	case interface{ Unwrap() []error }:
		return u.Unwrap()
	}
	return nil
}

func TestNoOutputShowsAPassword(t *testing.T) {
	standardLog := captureLog(t)
	for _, password := range passwords {
		t.Run(password, func(t *testing.T) {
			w := newFixture(t)
			e := &recorder{t: t, forms: forms("alice", password), digest: zk.DigestACL(0, "alice", password)[0].ID}
			proxy := zktest.NewProxy(t, w.server.Addr())
			c := w.secretClient(e, password, proxy.Addr(), "acl=digest&session_timeout=2s")
			late := w.useInEveryWay(e, c, proxy)
			maps.Copy(late, w.useDriver(e, password))
			w.fails(e, password)
			e.record("log and trace", e.String())
			e.record("the standard logger", standardLog.String())
			late["client"], late["*client"] = c, reflect.ValueOf(c).Elem().Interface()
			// Printing does not lock the values, so all goroutines
			// that use them must have ended.
			for what, v := range late {
				e.value(what, v)
				e.reach(what, v)
			}
			e.profiles()
		})
	}
}

func captureLog(t *testing.T) *sharedBuffer {
	var said sharedBuffer
	before, logger, std := log.Writer(), zk.DefaultLogger, slog.Default()
	log.SetOutput(&said)
	zk.DefaultLogger = log.New(&said, "", 0)
	t.Cleanup(func() { log.SetOutput(before); zk.DefaultLogger = logger; slog.SetDefault(std) })
	return &said
}

func (w *fixture) secretClient(e *recorder, password, addr, params string) *dlock.Client {
	w.Helper()
	dsn := "zk://alice:" + percent(password) + "@" + addr + w.root + "?" + params
	c, err := dlock.Open("zk", dsn, dlock.WithHostname("web1"),
		dlock.WithLogger(slog.New(slog.NewJSONHandler(&e.sharedBuffer, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}))),
		dlock.WithTrace(traceTo(e)))
	require.NoError(w, err)
	w.Cleanup(func() { c.Close() })
	return c
}

func traceTo(e *recorder) *recipes.Trace {
	say := func(v any) { fmt.Fprintf(&e.sharedBuffer, "%v %+v %#v\n", v, v, v) }
	return &recipes.Trace{
		Connected: func(_ context.Context, i recipes.ConnectedInfo) { say(i); say(i.Err) }, SessionEnded: func(_ context.Context, i recipes.SessionEndedInfo) { say(i.Err) },
		Queued: func(_ context.Context, i recipes.QueuedInfo) { say(i) }, Waiting: func(_ context.Context, i recipes.WaitingInfo) { say(i) },
		Granted: func(_ context.Context, i recipes.GrantedInfo) { say(i) }, Retrying: func(_ context.Context, i recipes.RetryingInfo) { say(i); say(i.Err) },
		Downgraded: func(_ context.Context, i recipes.DowngradedInfo) { say(i); say(i.Err) }, Released: func(_ context.Context, i recipes.ReleasedInfo) { say(i); say(i.Err) },
		Lost: func(_ context.Context, i recipes.LostInfo) { say(i); say(i.Err) }, Reaped: func(_ context.Context, i recipes.ReapedInfo) { say(i); say(i.Err) },
	}
}

// useInEveryWay uses c and returns values that are safe to print only
// afterwards.
func (w *fixture) useInEveryWay(e *recorder, c *dlock.Client, proxy *zktest.Proxy) (late map[string]any) {
	w.Helper()
	m := c.RWMutex("of/q")
	require.NoError(w, c.Ping(w.soon()))
	lock, err := m.Lock(w.soon())
	require.NoError(w, err)
	e.value("live mutex", m)
	e.value("live lock", lock)
	late = map[string]any{"mutex": m, "lock": lock, "lock's context": lock.Context(context.Background())}
	e.profiles()
	queue, err := m.Queue(w.soon())
	require.NoError(w, err)
	e.value("queue", queue)
	_, err = m.TryLock(w.soon())
	e.err("TryLock", err)
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	_, err = m.RLock(short)
	cancel()
	require.ErrorIs(w, err, dlock.ErrTimeout)
	e.err("RLock", err)
	w.recordStore(e)
	require.NoError(w, lock.Downgrade(w.soon()))
	_, err = m.Lock(lock.Context(w.soon()))
	require.ErrorIs(w, err, dlock.ErrUpgrade)
	e.err("upgrade", err)
	w.unlock(lock)
	e.err("second Unlock", lock.Unlock())

	lock, err = m.Lock(w.soon())
	require.NoError(w, err)
	proxy.DropConnections()
	proxy.Refuse()
	<-lock.Lost()
	e.err("lost", lock.Err())
	e.err("Unlock after a loss", lock.Unlock())
	short, cancel = context.WithTimeout(context.Background(), 300*time.Millisecond)
	_, err = m.Lock(short)
	cancel()
	require.Error(w, err)
	e.err("Lock without a server", err)
	e.err("Close", c.Close())
	_, err = m.Lock(w.soon())
	e.err("Lock after Close", err)
	return late
}

// recordStore omits ACLs, which contain a digest of the password on purpose.
func (w *fixture) recordStore(e *recorder) {
	w.Helper()
	require.NoError(w, w.raw.AddAuth("digest", []byte("super:zktest")))
	for _, path := range w.server.Tree(w, w.root) {
		e.record("a path", path)
		data, _, err := w.raw.Get(path)
		require.NoError(w, err)
		e.record("the data of "+path, string(data))
	}
}

func callAll(ctx context.Context, m *dlock.RWMutex) map[string]error {
	all := make(map[string]error)
	_, all["Lock"] = m.Lock(ctx)
	_, all["RLock"] = m.RLock(ctx)
	_, all["TryLock"] = m.TryLock(ctx)
	_, all["TryRLock"] = m.TryRLock(ctx)
	_, all["Queue"] = m.Queue(ctx)
	inside := func(context.Context, *dlock.Lock) error { panic("inside") }
	all["WithLock"] = m.WithLock(ctx, inside)
	all["WithRLock"] = m.WithRLock(ctx, inside)
	return all
}

func (w *fixture) fails(e *recorder, password string) {
	w.Helper()
	escaped, certs := percent(password), testenv.NewCerts(w)
	for _, address := range []string{
		"127.0.0.1:1", "host.invalid:1", w.server.Addr() + "?tls=true&tls_ca=" + percent(certs.CA), w.server.Addr() + "?tls=true&tls_ca=/missing",
		w.server.Addr() + "?tls=true&tls_cert=/missing&tls_key=/missing",
	} {
		params := "?connect_timeout=200ms"
		if strings.Contains(address, "?") {
			params = "&connect_timeout=200ms"
		}
		c, err := dlock.Open("zk", "zk://alice:"+escaped+"@"+address+params, dlock.WithTrace(traceTo(e)), dlock.WithLogger(slog.New(slog.NewTextHandler(&e.sharedBuffer, nil))))
		require.NoError(w, err)
		ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
		err = c.Ping(ctx)
		require.Error(w, err, address)
		e.err("Ping of "+address, err)
		_, err = c.RWMutex("q").Lock(ctx)
		cancel()
		e.err("Lock at "+address, err)
		e.err("Close", c.Close())
	}
	stranger := w.secretClient(e, password+"wrong", w.server.Addr(), "session_timeout=5s")
	for call, err := range callAll(w.soon(), stranger.RWMutex("of/q")) {
		e.err(call+" of a stranger", err)
	}
}

// Somebody may pass a DSN as the driver's name, or to the wrong driver.
func TestNoMistakeWithADSNRepeatsItsPassword(t *testing.T) {
	const password = "XYZZYmarker"
	e := &recorder{t: t, forms: forms("alice", password)}
	good := "zk://alice:" + password + "@h1:2181,h2:2182/locks?session_timeout=10s&acl=digest"
	for _, name := range []string{"zk", "mem", "", "zookeeper", "etcd", good, "alice:" + password + "@h", "zk " + good, "host=h password=" + password} {
		for _, dsn := range []string{"", good, strings.TrimPrefix(good, "zk://"), "redis" + strings.TrimPrefix(good, "zk")} {
			c, err := dlock.Open(name, dsn)
			if err == nil {
				e.value("client", c)
				e.reach("client", c)
				require.NoError(t, c.Close())
			}
			e.err(fmt.Sprintf("Open(%.6q, %.20q)", name, dsn), err)
		}
	}
}

// useDriver is like useInEveryWay, but calls the driver directly.
func (w *fixture) useDriver(e *recorder, password string) map[string]any {
	w.Helper()
	d := zkdriver.Driver{TLS: testenv.NewCerts(w).ClientConfig(w)}
	secured, err := d.OpenConnector("zk://alice:" + percent(password) + "@h?acl=creator")
	require.NoError(w, err)
	c, err := zkdriver.Driver{}.OpenConnector("zk://alice:" + percent(password) + "@" + w.server.Addr() + w.root + "?acl=digest")
	require.NoError(w, err)
	s, err := c.Connect(w.soon())
	require.NoError(w, err)
	p, err := s.Create(w.soon(), "of/r", driver.NodeSpec{Prefix: "web1-W-", Data: []byte("x")})
	require.NoError(w, err)
	info, err := driver.Inspect(s).Read(w.soon(), "of/r", p.Name)
	require.NoError(w, err)
	require.NoError(w, s.Close())
	e.err("the session's end", s.Err())
	return map[string]any{"driver": d, "*driver": &d, "secured connector": secured, "connector": c, "session": s, "place": p.Place, "info": info}
}

func (e *recorder) profiles() {
	e.t.Helper()
	for _, debug := range []int{1, 2} {
		var b bytes.Buffer
		require.NoError(e.t, pprof.Lookup("goroutine").WriteTo(&b, debug))
		e.record("goroutines", b.String())
	}
}

// reach records all text reachable from v, except in variables captured by
// closures.
func (e *recorder) reach(what string, v any) {
	e.t.Helper()
	e.walk(what, reflect.ValueOf(v), make(map[visit]bool), 0)
}

type visit struct {
	at unsafe.Pointer
	of reflect.Type
}

func (e *recorder) walk(path string, v reflect.Value, seen map[visit]bool, depth int) {
	if !v.IsValid() || depth > 60 || foreign(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.String:
		e.record(path, v.String())
	case reflect.Pointer:
		at := visit{v.UnsafePointer(), v.Type()}
		if !v.IsNil() && !seen[at] {
			seen[at] = true
			e.walk(path, v.Elem(), seen, depth+1)
		}
	case reflect.Interface:
		e.walk(path, v.Elem(), seen, depth+1)
	case reflect.Struct:
		for i := range v.NumField() {
			e.walk(path+"."+v.Type().Field(i).Name, v.Field(i), seen, depth+1)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			e.walk(path+"[key]", key, seen, depth+1)
			e.walk(path+"[value]", v.MapIndex(key), seen, depth+1)
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			var text []byte
			if v.Kind() == reflect.Slice {
				text = v.Bytes()
			} else {
				for i := range v.Len() {
					text = append(text, byte(v.Index(i).Uint()))
				}
			}
			// The buffer holds the last request, whose ACL contains
			// the digest legitimately.
			if strings.HasSuffix(path, ".client.buf") {
				text = bytes.ReplaceAll(text, []byte(e.digest), nil)
			}
			e.record(path, string(text))
			return
		}
		for i := range min(v.Len(), 1000) {
			e.walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i), seen, depth+1)
		}
	}
}

// foreign reports whether values of t are the test's own or guarded by locks.
func foreign(t reflect.Type) bool {
	return t == reflect.TypeFor[*recorder]() || t.PkgPath() == "log/slog" || strings.HasPrefix(t.PkgPath(), "internal/") || t.PkgPath() == "testing" || t.PkgPath() == "sync" || t.PkgPath() == "time"
}

// Without a recorder that finds passwords, the other tests would prove nothing.
func TestThePasswordWouldBeFound(t *testing.T) {
	type inner struct{ bytes []byte }
	type outer struct {
		m map[string]*inner
		i any
	}
	for name, v := range map[string]any{
		"bytes":  outer{m: map[string]*inner{"x": {bytes: []byte("..XYZZYmarker..")}}},
		"any":    &outer{i: &[]string{"", "alice:XYZZYmarker"}},
		"base64": outer{i: base64.StdEncoding.EncodeToString([]byte("XYZZYmarker"))},
		"error":  outer{i: errors.New("zk://alice:XYZZYmarker@h")},
	} {
		quiet := &listener{TB: t}
		e := &recorder{t: quiet, forms: forms("alice", "XYZZYmarker")}
		e.walk("v", reflect.ValueOf(v), map[visit]bool{}, 0)
		require.True(t, quiet.failed, name)
	}
}

// listener records a failure, so that a test can expect it.
type listener struct {
	testing.TB
	failed bool
}

func (l *listener) Errorf(string, ...any) { l.failed = true }
