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
	"github.com/dlock-go/dlock/dlocktest/faults"
	"github.com/dlock-go/dlock/driver"
)

const conformanceTimeout = 600 * time.Millisecond

func TestConformance(t *testing.T) {
	playDisks(t)
	dlocktest.Run(t, dlocktest.Config{
		New: newStore,
		// One count serves all queues and has room for 10^18 nodes.
		NewNearRollOver: newStore,
		SessionTimeout:  conformanceTimeout,
		Complete:        true,
		Abilities:       []dlocktest.Ability{dlocktest.AbilityAhead, dlocktest.AbilityReplace},

		Drop: func(t *testing.T, s driver.Session) {
			d := homeOf(s).store
			if err := os.Remove(d.path(s.(*session).id)); err != nil {
				t.Fatal(err)
			}
			operate(t, d, func(*state) {})
		},
		CutOff: cutOff,
		Reset:  func(t *testing.T, s driver.Session) { cutOff(t, s)() },
		LoseRequest: func(t *testing.T, s driver.Session, _ faults.Op) {
			disks.Store(s.(*session).store.dir, disk{fails: true})
		},
		LoseReply: func(t *testing.T, s driver.Session, _ faults.Op) {
			disks.Store(s.(*session).store.dir, disk{fails: true, late: true})
		},
		HoldRequest: func(t *testing.T, s driver.Session, _ faults.Op) (arrive func()) {
			disks.Store(s.(*session).store.dir, disk{fails: true})
			return func() {} // no change arrives after its rename has failed
		},
		DelayReplies: func(t *testing.T, s driver.Session, d time.Duration) {
			disks.Store(s.(*session).store.dir, disk{delay: d})
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
				p := driver.Place{Node: driver.Node{Name: name}}
				st.Queues[queue] = append(st.Queues[queue], node{Place: p, Data: string(data)})
				st.Version++
			})
		},
	})
}

// cutOff removes the session's own way to the directory.
func cutOff(t *testing.T, s driver.Session) (heal func()) {
	way := s.(*session).store.dir
	if err := os.Remove(way); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		if err := os.Symlink(homeOf(s).store.dir, way); err != nil {
			t.Error(err)
		}
	})
}

// operate changes a store as an operator does who edits the file.
func operate(t *testing.T, d store, f func(*state)) {
	err := d.update(context.Background(), func(st *state) error {
		f(st)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// home is a store whose sessions each come by a way of their own, a symbolic
// link, so that one of them can be cut off.
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

// directory returns a directory in memory, if the system has one: the kit makes
// some ten thousand changes, and a disk takes milliseconds for each.
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

// disk is what goes wrong with a disk.
type disk struct {
	fails bool          // at the next change of a queue
	late  bool          // when the change is made, rather than before
	delay time.Duration // of the reply to each heartbeat
}

var disks sync.Map // directory, as a session names it, to disk

// playDisks puts such disks under the driver.
func playDisks(t *testing.T) {
	rename = func(root *os.Root, from, to string) error {
		bad := diskOf(root.Name())
		if !bad.fails || version(root, from) == version(root, to) {
			return root.Rename(from, to)
		}
		disks.Delete(root.Name())
		if bad.late {
			if err := root.Rename(from, to); err != nil {
				return err
			}
		}
		return errors.New("input/output error")
	}
	chtimes = func(name string, access, modified time.Time) error {
		defer time.Sleep(diskOf(filepath.Dir(name)).delay)
		return os.Chtimes(name, access, modified)
	}
	t.Cleanup(func() { rename, chtimes = (*os.Root).Rename, os.Chtimes })
}

func diskOf(dir string) disk {
	d, _ := disks.Load(dir)
	bad, _ := d.(disk)
	return bad
}

// version differs after each change of a queue. It does not after a heartbeat.
func version(root *os.Root, name string) int64 {
	b, err := root.ReadFile(name)
	var st state
	if err != nil || json.Unmarshal(b, &st) != nil {
		return -1
	}
	return st.Version
}
