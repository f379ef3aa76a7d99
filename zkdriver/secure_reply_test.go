package zkdriver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/zktest"
)

// hostileServerVariable is set in child processes, where go-zookeeper may panic
// without ending the tests.
const hostileServerVariable = "ZKDRIVER_HOSTILE_SERVER_DSN"

// TestClientOfAHostileServer is the child process of the tests below.
func TestClientOfAHostileServer(t *testing.T) {
	dsn := os.Getenv(hostileServerVariable)
	if dsn == "" {
		return // not a child process
	}
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		use(dsn)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Printf("SURVIVED with %d MB\n", m.Sys>>20)
}

var errTestOver = errors.New("the test is over")

func use(dsn string) {
	c, err := Driver{}.OpenConnector(dsn)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 250*time.Millisecond)
	defer cancel()
	s, err := c.Connect(ctx)
	if err != nil {
		return
	}
	// End only the lease, because ending the session in the store takes time.
	defer s.(*session).conn.Lease().End(errTestOver)
	for ctx.Err() == nil && s.Err() == nil {
		p, err := create(ctx, s, "q", "web1-W-", []byte(fmt.Sprint(rand.Uint64())))
		_, _ = s.List(ctx, "q")
		_, _ = watchName(ctx, s, "q", "web1-W-0000000001")
		_, _ = s.(*session).Read(ctx, "q", "web1-W-0000000001")
		if err == nil {
			p, _ = s.(*session).Replace(ctx, "q", p, "web1-R-")
			_ = s.Delete(ctx, "q", p, driver.Changed)
		}
	}
}

func survives(t *testing.T, name, dsn string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestClientOfAHostileServer$", "-test.v")
	cmd.Env = append(os.Environ(), hostileServerVariable+"="+dsn)
	out, err := cmd.CombinedOutput()
	// Ignore the exit status: go-zookeeper's data race sets it under -race.
	_, after, survived := strings.Cut(string(out), "SURVIVED with ")
	if !survived {
		t.Errorf("%s: the process has ended: %v\n%.2000s", name, err, out)
		return
	}
	var megabytes int
	_, err = fmt.Sscan(after, &megabytes)
	assert.NoError(t, err, name)
	assert.Less(t, megabytes, 1500, "memory: "+name)
}

func hostileServer(t *testing.T, greeting []byte, reply func(opcode int32) []byte) string {
	t.Helper()
	return doctortest.Listen(t, func(conn net.Conn) { serveHostile(conn, greeting, reply) })
}

func serveHostile(conn net.Conn, greeting []byte, reply func(opcode int32) []byte) {
	conn.SetDeadline(time.Now().Add(bound))
	if _, err := readRequest(conn); err != nil {
		return
	}
	conn.Write(greeting)
	for {
		frame, err := readRequest(conn)
		if err != nil || len(frame) < 8 {
			return
		}
		xid, opcode := frame[:4], int32(binary.BigEndian.Uint32(frame[4:]))
		body := reply(opcode)
		b := binary.BigEndian.AppendUint32(nil, uint32(16+len(body)))
		b = append(b, xid...)
		b = binary.BigEndian.AppendUint64(b, 100) // zxid
		b = binary.BigEndian.AppendUint32(b, 0)   // no error
		conn.Write(append(b, body...))
	}
}

func readRequest(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > 1<<20 {
		return nil, errors.New("too long")
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(r, frame)
	return frame, err
}

func TestNoReplyEndsTheProcess(t *testing.T) {
	t.Parallel()
	number := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	multi := func(body ...byte) func(int32) []byte {
		return func(opcode int32) []byte {
			switch opcode {
			case zktest.OpMulti:
				return body
			case zktest.OpGetData: // a correct answer, so that a Multi follows
				return append(number(0), make([]byte, 68)...)
			}
			return make([]byte, 100)
		}
	}
	var all sync.WaitGroup
	for name, reply := range map[string]func(int32) []byte{
		"empty":                            func(int32) []byte { return nil },
		"one byte":                         func(int32) []byte { return []byte{0} },
		"zeros":                            func(int32) []byte { return make([]byte, 1000) },
		"ones":                             func(int32) []byte { return []byte(strings.Repeat("\xff", 1000)) },
		"a list of 2 billion":              func(int32) []byte { return append(number(0x7fffffff), make([]byte, 100)...) },
		"a list of minus one":              func(int32) []byte { return append(number(0xffffffff), make([]byte, 100)...) },
		"a list of 100 million":            func(int32) []byte { return append(number(100_000_000), make([]byte, 100)...) },
		"a transaction that ends early":    multi(0, 0, 0, 1),
		"a transaction without an end":     multi(0, 0, 0, 2, 0, 0, 0, 0, 0),
		"a transaction of something else":  multi(0, 0, 0, 99, 0, 0, 0, 0, 0),
		"a transaction with half a Stat":   multi(0, 0, 0, 5, 0, 0, 0, 0, 0, 1, 2, 3),
		"a transaction of nothing":         multi(0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff),
		"a transaction with a long name":   multi(0, 0, 0, 1, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff),
		"random bytes":                     func(int32) []byte { return random(rand.IntN(200)) },
		"random bytes with a small number": func(int32) []byte { return append(number(rand.Uint32N(4)), random(rand.IntN(200))...) },
		"random bytes in a transaction":    func(int32) []byte { return append([]byte{0, 0, 0, byte(rand.IntN(15)), 0}, random(rand.IntN(200))...) },
	} {
		address := hostileServer(t, sessionReply(4*time.Second, 7), reply)
		all.Go(func() {
			survives(t, name, "zk://"+address+"?session_timeout=4s")
		})
	}
	all.Wait()
}

func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

func TestNoGreetingEndsTheProcess(t *testing.T) {
	t.Parallel()
	long := sessionReply(4*time.Second, 7)
	binary.BigEndian.PutUint32(long[20:], 0x7fffffff)
	short := sessionReply(4*time.Second, 7)
	binary.BigEndian.PutUint32(short[20:], 0)
	var all sync.WaitGroup
	for name, greeting := range map[string][]byte{
		"a password of 2 GB":         long,
		"no password":                short,
		"a session of a millisecond": sessionReply(time.Millisecond, 7),
		"a session of no time":       sessionReply(0, 7),
		"a session of a past time":   sessionReply(-time.Second, 7),
		"a session of 24 days":       sessionReply(1<<31*time.Millisecond-1, 7),
		"no session":                 sessionReply(4*time.Second, 0),
		"a frame of 2 GB":            {0x7f, 0xff, 0xff, 0xff},
		"a frame of 4 KB":            append([]byte{0, 0, 0x0f, 0xff}, make([]byte, 5000)...),
		"an event at once":           append(sessionReply(4*time.Second, 7), 0, 0, 0, 17, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1),
		"a frame of 200 MB to come":  append(sessionReply(4*time.Second, 7), 0x0b, 0, 0, 0, 0, 0, 0, 1),
	} {
		address := hostileServer(t, greeting, func(int32) []byte { return nil })
		all.Go(func() {
			survives(t, name, "zk://"+address+"?session_timeout=4s&connect_timeout=300ms")
		})
	}
	all.Wait()
}

func TestAReplyOfTheWrongShapeIsAPassingError(t *testing.T) {
	address := hostileServer(t, sessionReply(time.Minute, 7), func(int32) []byte { return nil })
	s := mustConnect(t, "zk://"+address)
	defer s.conn.Lease().End(errTestOver)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := s.List(ctx, "q")
	require.Error(t, err)
	require.True(t, errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded), "%v", err)
}
