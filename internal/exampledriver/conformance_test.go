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
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/session"
)

const conformanceTimeout = 600 * time.Millisecond

func TestConformance(t *testing.T) {
	playDisks(t)
	dlocktest.Run(t, dlocktest.Config{
		New: newStore,
		// The same as New, because the counter has room for 10^18 nodes and so
		// cannot be brought near its end.
		NewNearRollOver: newStore,
		SessionTimeout:  conformanceTimeout,
		Parallel:        4,
		Complete:        true,
		Abilities:       []dlocktest.Ability{dlocktest.AbilityAhead},

		Drop: func(t *testing.T, s driver.Session) {
			d := storeOf(s).store
			if err := os.Remove(d.path(memberOf(s).id)); err != nil {
				t.Fatal(err)
			}
			operate(t, d, func(*state) {})
		},
		CutOff:         cutOff,
		Reset:          func(t *testing.T, s driver.Session) { cutOff(t, s)() },
		SilenceNotices: func(*testing.T, driver.Session) {}, // no-op, because this driver polls
		LoseRequest: func(t *testing.T, s driver.Session, _ faults.Op) {
			disks.Store(memberOf(s).dir, disk{fails: true})
		},
		LoseReply: func(t *testing.T, s driver.Session, _ faults.Op) {
			disks.Store(memberOf(s).dir, disk{fails: true, late: true})
		},
		HoldRequest: func(t *testing.T, s driver.Session, _ faults.Op) (arrive func()) {
			disks.Store(memberOf(s).dir, disk{fails: true})
			return func() {} // no-op: a change whose rename has failed never arrives
		},
		DelayReplies: func(t *testing.T, s driver.Session, d time.Duration) {
			disks.Store(memberOf(s).dir, disk{delay: d})
		},
		Pause: func(t *testing.T, s driver.Session, d time.Duration) {
			dlocktest.SkewLease(s.(*session.Session).Lease(), d)
		},
		RemoveQueue: func(t *testing.T, c driver.Connector, queue string) {
			operate(t, c.(linkedStore).store, func(st *state) {
				st.keep(queue, func(node) bool { return false })
			})
		},
		RemoveNode: func(t *testing.T, c driver.Connector, queue, name string) {
			operate(t, c.(linkedStore).store, func(st *state) {
				st.keep(queue, func(n node) bool { return n.Name != name })
			})
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			operate(t, c.(linkedStore).store, func(st *state) {
				p := driver.Place{Node: driver.Node{Name: name}}
				st.Queues[queue] = append(st.Queues[queue], node{Place: p, Data: string(data)})
				st.Version++
			})
		},
	})
}

// cutOff cuts the session off from its store: it removes the symbolic link
// through which the session finds the directory.
func cutOff(t *testing.T, s driver.Session) (heal func()) {
	link := memberOf(s).dir
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		if err := os.Symlink(storeOf(s).store.dir, link); err != nil {
			t.Error(err)
		}
	})
}

// operate applies f to the state file of a store, as if an operator had edited
// it.
func operate(t *testing.T, d store, f func(*state)) {
	err := d.update(context.Background(), func(st *state) error {
		f(st)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// linkedStore gives each session a symbolic link of its own to the directory,
// which cutOff removes.
type linkedStore struct {
	t     *testing.T
	links string // directory that contains the links
	connector
}

var stores sync.Map // maps each driver.Session to its linkedStore

func storeOf(s driver.Session) linkedStore {
	st, _ := stores.Load(s)
	return st.(linkedStore)
}

func newStore(t *testing.T) driver.Connector {
	dir := directory(t)
	c, err := Driver{}.OpenConnector(dir + "?session_timeout=" + conformanceTimeout.String())
	if err != nil {
		t.Fatal(err)
	}
	return linkedStore{t, t.TempDir(), c.(connector)}
}

// directory returns a new directory, in memory if possible: the kit makes about
// ten thousand changes, each of which takes milliseconds on a disk.
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

func (st linkedStore) Connect(ctx context.Context) (driver.Session, error) {
	c := st.connector
	c.store.dir = filepath.Join(st.links, rand.Text())
	if err := os.Symlink(st.store.dir, c.store.dir); err != nil {
		return nil, err
	}
	s, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	stores.Store(s, st)
	st.t.Cleanup(func() { stores.Delete(s) })
	return s, nil
}

// disk injects faults into one session's disk.
type disk struct {
	fails bool          // the next change of a queue returns an error
	late  bool          // the change is made in spite of the error
	delay time.Duration // of the reply to each heartbeat
}

var disks sync.Map // maps the name of a session's link to its disk

// playDisks replaces functions of the driver to inject the faults in disks.
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

// version returns the version of the state in a file. It rises with each change
// of a queue, but not with heartbeats.
func version(root *os.Root, name string) int64 {
	b, err := root.ReadFile(name)
	var st state
	if err != nil || json.Unmarshal(b, &st) != nil {
		return -1
	}
	return st.Version
}

// memberOf returns the store of a session.
func memberOf(s driver.Session) *member { return s.(*session.Session).Store().(*member) }
