//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package exampledriver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
)

const conformanceTimeout = 600 * time.Millisecond

func TestConformance(t *testing.T) {
	failRenames(t)
	dlocktest.Run(t, dlocktest.Config{
		New: newStore,
		// One count serves all queues and has room for 10^18 nodes.
		NewNearRollOver: newStore,
		SessionTimeout:  conformanceTimeout,
		Complete:        true,

		Expire: func(t *testing.T, s driver.Session) {
			s0 := s.(*session)
			operate(t, homeOf(s).store, func(st *state) {
				delete(st.Sessions, s0.id)
				st.remove(func(_ string, n node) bool { return n.Owner == s0.id })
			})
		},
		CutOff: func(t *testing.T, s driver.Session) (heal func()) {
			// The session's own way to the directory goes away.
			way := s.(*session).store.dir
			if err := os.Remove(way); err != nil {
				t.Fatal(err)
			}
			return sync.OnceFunc(func() {
				if err := os.Symlink(homeOf(s).store.dir, way); err != nil {
					t.Error(err)
				}
			})
		},
		LoseReply: func(t *testing.T, s driver.Session, _ dlocktest.Op, committed bool) {
			failures.Store(s.(*session).store.dir, committed)
		},
		Pause: func(t *testing.T, s driver.Session, d time.Duration) { dlocktest.SkewLease(s.(*session).lease, d) },
		RemoveQueue: func(t *testing.T, c driver.Connector, queue string) {
			operate(t, c.(home).store, func(st *state) {
				st.remove(func(q string, _ node) bool { return q == queue })
			})
		},
		RemoveNode: func(t *testing.T, c driver.Connector, queue, name string) {
			operate(t, c.(home).store, func(st *state) {
				st.remove(func(q string, n node) bool { return q == queue && n.Name == name })
			})
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			operate(t, c.(home).store, func(st *state) {
				_, seq, _ := driver.ParseName(name)
				st.Queues[queue] = append(st.Queues[queue], node{Name: name, Seq: seq, Data: string(data)})
				st.Version++
			})
		},
	})
}

// operate changes a store as somebody does who edits the file.
func operate(t *testing.T, d store, f func(*state)) {
	err := d.update(context.Background(), func(st *state) error {
		f(st)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// home is a store whose sessions each come by a way of their own, a symbolic link, so that one of them
// can be cut off.
type home struct {
	t    *testing.T
	ways string
	connector
}

var homes sync.Map // driver.Session to home

func homeOf(s driver.Session) home {
	h, _ := homes.Load(s)
	return h.(home)
}

func newStore(t *testing.T) driver.Connector {
	dir := directory(t)
	c, err := Driver{}.OpenConnector(dir + "?session_timeout=" + conformanceTimeout.String())
	if err != nil {
		t.Fatal(err)
	}
	return home{t, t.TempDir(), c.(connector)}
}

// directory returns one in memory, where there is such a place: the kit makes some ten thousand
// changes, and a disk takes milliseconds for each.
func directory(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "dlock-example-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (h home) Connect(ctx context.Context) (driver.Session, error) {
	way := h.connector
	way.store.dir = filepath.Join(h.ways, rand.Text())
	if err := os.Symlink(h.store.dir, way.store.dir); err != nil {
		return nil, err
	}
	s, err := way.Connect(ctx)
	if err != nil {
		return nil, err
	}
	homes.Store(s, h)
	h.t.Cleanup(func() { homes.Delete(s) })
	return s, nil
}

// failures holds the ways on which the next change of a queue meets a disk that fails, after the
// change was made or before.
var failures sync.Map // directory to whether the change is made

// failRenames puts a disk that can fail under the driver.
func failRenames(t *testing.T) {
	rename = func(root *os.Root, from, to string) error {
		committed, armed := failures.Load(root.Name())
		if !armed || version(root, from) == version(root, to) { // a session that comes or goes
			return root.Rename(from, to)
		}
		failures.Delete(root.Name())
		if committed.(bool) {
			if err := root.Rename(from, to); err != nil {
				return err
			}
		}
		return errors.New("input/output error")
	}
	t.Cleanup(func() { rename = (*os.Root).Rename })
}

// version tells whether a queue has changed.
func version(root *os.Root, name string) int64 {
	b, err := root.ReadFile(name)
	var st state
	if err != nil || json.Unmarshal(b, &st) != nil {
		return -1
	}
	return st.Version
}
