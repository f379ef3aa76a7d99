package endtoend_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/recipes"
)

// These variables turn the test binary into a client process: a contender for
// the lock "q", or a candidate of the election "q". The value is the data
// source name.
const (
	contenderVariable = "ENDTOEND_CONTENDER_DSN"
	candidateVariable = "ENDTOEND_CANDIDATE_DSN"
)

func TestMain(m *testing.M) {
	for variable, act := range map[string]func(*dlock.Client){contenderVariable: takeLock, candidateVariable: campaign} {
		if dsn := os.Getenv(variable); dsn != "" {
			os.Exit(processMain(dsn, act))
		}
	}
	os.Exit(leakcheck.After(zktest.Main(m)))
}

// processMain is the main function of a client process. It prints each step. It
// exits at the end of its input, and thus even if the parent dies.
func processMain(dsn string, act func(*dlock.Client)) int {
	client, err := dlock.Open("zk", dsn, dlock.WithHostname("child"), dlock.WithTrace(&recipes.Trace{
		Waiting: func(_ context.Context, i recipes.WaitingInfo) { fmt.Println("waiting", i.Node) },
	}))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	go act(client)
	io.Copy(io.Discard, os.Stdin)
	return 0
}

func takeLock(client *dlock.Client) {
	lock, err := client.RWMutex("q").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held", lock.Node())
}

// campaign prints each time at which the process was the leader, with the token
// of its term. It takes the time before it calls Err, so the time is right even
// if the process is stopped in between.
func campaign(client *dlock.Client) {
	err := client.Election("q").Run(context.Background(), func(ctx context.Context, term *dlock.Lock) error {
		for ctx.Err() == nil {
			now := time.Now().UnixNano()
			if term.Err() == nil {
				fmt.Println("led", term.Token(), now)
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	fmt.Println("over", err)
}

// process starts a client process, and passes the lines that it prints to said.
func (w *fixture) process(variable, dsn string, said func(line string)) *os.Process {
	w.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), variable+"="+dsn)
	in, err := cmd.StdinPipe()
	require.NoError(w, err)
	out, err := cmd.StdoutPipe()
	require.NoError(w, err)
	require.NoError(w, cmd.Start())
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			said(s.Text())
		}
	}()
	w.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process
}
