package command

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

func threeLocks(t *testing.T, store *memdriver.Store) {
	held(t, client(t, store, "web1"), "a/calm")
	time.Sleep(time.Minute)
	busy := held(t, client(t, store, "web2"), "b/busy")
	for range 2 {
		time.Sleep(time.Second)
		go func() { _, _ = client(t, store, "web3").RWMutex("b/busy").Lock(t.Context()) }()
	}
	time.Sleep(time.Second)
	for _, host := range []string{"web4", "web5"} {
		_, err := client(t, store, host).RWMutex("c/read").RLock(t.Context())
		require.NoError(t, err)
	}
	t.Cleanup(func() { _ = busy.Unlock() })
}

func TestTopShowsTheBusiestLocksFirst(t *testing.T) {
	onStore(t, func(t *testing.T, store *memdriver.Store) {
		_, stdout, _ := runTool(t, "top")
		assert.Contains(t, stdout, "nobody holds a lock or waits for one")
		_, stdout, _ = runTool(t, "top", "-json")
		assert.Contains(t, stdout, `"locks":[]`)
		threeLocks(t, store)
		status, stdout, stderr := runTool(t, "top", "-rows", "2")
		assert.Zero(t, status, stderr)
		assert.Regexp(t, `^shared at \d\d:\d\d:\d\d
LOCK    HOLD  WAIT  MODE       HOST  PID +PROGRAM +FOR    LEFT +WAITED
b/busy  1     2     exclusive  web2  \d+ +command.test +3.0s +\S+ +2.0s
a/calm  1     0     exclusive  web1  \d+ +command.test +1m03s +\S+ +-
and 1 more locks
$`, stdout)
		_, stdout, _ = runTool(t, "top", "-json", "c")
		var got glance
		require.NoError(t, json.Unmarshal([]byte(stdout), &got))
		require.Len(t, got.Locks, 1)
		assert.Equal(t, "c/read", got.Locks[0].Lock)
		assert.Len(t, got.Locks[0].Contenders, 2)
	})
}

func TestTopShowsTheOtherQueuesIfOneFails(t *testing.T) {
	onStore(t, func(t *testing.T, store *memdriver.Store) {
		threeLocks(t, store)
		var reads atomic.Int64
		shared = faults.New(store, func(_ context.Context, r faults.Request) faults.Fault {
			if r.Op == faults.OpRead && r.Stage == faults.StageRequest {
				reads.Add(1)
			}
			return faults.Fault{Lose: r.Op == faults.OpList && r.Queue == "a/calm", Err: errors.New("bad \x1b data")}
		})
		status, stdout, stderr := runTool(t, "top")
		assert.Zero(t, status, stderr)
		assert.Regexp(t, `\na/calm  \?     \?     -.* "a/calm: .*bad . data"\nb/busy  1 .*\nc/read  2 `, stdout)
		assert.NotContains(t, stdout, "\x1b")
		assert.EqualValues(t, 3, reads.Load(), "a holder and a waiter of b/busy, and a holder of c/read")
		_, stdout, _ = runTool(t, "top", "-json")
		assert.Regexp(t, `{"lock":"a/calm","contenders":\[\],"error":"a/calm: .*data"}`, stdout)
		status, _, stderr = runTool(t, "top", "a")
		assert.Equal(t, failedStatus, status)
		assert.Contains(t, stderr, "data")
	})
}

func TestServeShowsThePageToThisMachineOnly(t *testing.T) {
	onStore(t, func(t *testing.T, store *memdriver.Store) {
		threeLocks(t, store)
		held(t, client(t, store, `<b onclick="x">`), "<script>alert(1)</script>")
		c := client(t, store, "operator")
		p := &page{tool: newTool("serve", "", "", nil, nil, nil), client: c}
		get := func(method, url, origin string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(method, url, nil)
			if origin != "" {
				r.Header.Set("Origin", origin)
			}
			w := httptest.NewRecorder()
			onlyFromHere(p).ServeHTTP(w, r)
			return w
		}
		shown := get("GET", "http://localhost:8475/", "")
		assert.Equal(t, http.StatusOK, shown.Code)
		assert.Contains(t, shown.Header().Get("Content-Security-Policy"), "default-src 'none'")
		body := shown.Body.String()
		assert.Contains(t, body, "<td>b/busy<td>1<td>2<td>exclusive<td>web2")
		assert.Contains(t, body, "&lt;script&gt;alert(1)")
		assert.NotContains(t, body, "<script")
		assert.NotContains(t, body, "<b ")
		for _, bad := range [][3]string{
			{"GET", "http://attacker.example/", ""},
			{"GET", "http://192.0.2.1:8475/", ""},
			{"GET", "http://localhost:8475/", "http://attacker.example"},
			{"GET", "http://localhost:8475/", "null"},
			{"POST", "http://localhost:8475/", ""},
			{"GET", "http://localhost:8475/other", ""},
		} {
			w := get(bad[0], bad[1], bad[2])
			assert.Contains(t, []int{403, 404, 405}, w.Code, "%v", bad)
			assert.NotContains(t, w.Body.String(), "b/busy", "%v", bad)
		}

		held(t, client(t, store, "web6"), "d/new")
		assert.NotContains(t, get("GET", "http://127.0.0.1:1/", "").Body.String(), "d/new", "a second look within a second")
		time.Sleep(time.Second)
		assert.Contains(t, get("GET", "http://[::1]/", "http://[::1]").Body.String(), "d/new")
		require.NoError(t, c.Close())
		time.Sleep(time.Second)
		failed := get("GET", "http://localhost/", "")
		assert.Equal(t, http.StatusServiceUnavailable, failed.Code)
		assert.Contains(t, failed.Body.String(), "<td>d/new", "what was seen last")
		assert.Contains(t, failed.Body.String(), dlock.ErrClosed.Error()[len("dlock: "):])
	})
}

func TestServeListensForThisMachineOnly(t *testing.T) {
	onStore(t, func(t *testing.T, _ *memdriver.Store) {
		for _, address := range []string{":8475", "0.0.0.0:0", "192.0.2.1:80", "localhost"} {
			status, _, stderr := runTool(t, "serve", "-listen", address)
			assert.Equal(t, usageStatus, status, address)
			assert.Contains(t, stderr, "address", address)
		}
	})
}
