package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/command"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestNoMistakeOnTheCommandLineRepeatsAPassword(t *testing.T) {
	const dsn = "zk://alice:ge=heim@127.0.0.1:1/x"
	for _, args := range [][]string{
		{dsn}, {"help", dsn}, {"help", "demo", dsn}, {"demo", dsn}, {"demo", "-" + dsn}, {"demo", "-dsn:" + dsn}, {"demo", "-dsn" + dsn},
		{"demo", "-workers", dsn}, {"demo", "-workers=" + dsn}, {"demo", "-hold", dsn}, {"demo", "-fault=" + dsn},
		{"demo", "-driver", dsn}, {"demo", "-driver", dsn, "-dsn", dsn}, {"demo", "-driver", "mem", "-dsn", dsn},
		{"demo", "-dsn", "alice:ge=heim@h?x=y"}, {"demo", "-lock", dsn},
		{"demo", "-driver", "zk", "-dsn", dsn + "?acl=x"}, {"demo", "-driver", "zk", "-dsn", dsn + "@"}, {"demo", "-driver", "zk", "-dsn", "x" + dsn},
		{"run", dsn}, {"run", "-" + dsn}, {"run", "-w", dsn, "l", "true"}, {"run", "l", "-" + dsn}, {"run", dsn, "--", "no-such-command"},
		{"run", "-driver", dsn, "l", "true"}, {"run", "-dsn", dsn, "l", "true"}, {"run", "-driver", "zk", "-dsn", dsn + "?acl=x", "l", "true"},
		{"run", "l", "--", dsn}, {"run", "-config", dsn, "l", "true"},
		{"demo", "-driver", "zk", "-dsn", dsn + "?connect_timeout=50ms"},
	} {
		var stdout, stderr bytes.Buffer
		assert.NotZero(t, command.Run(t.Context(), args, &stdout, &stderr), "%q", args)
		assert.NotEmpty(t, stderr.String(), "%q", args)
		assert.NotContains(t, stdout.String()+stderr.String(), "heim", "%q", args)
		assert.NotContains(t, stdout.String()+stderr.String(), "alice:ge", "%q", args)
	}
}

// All users of a machine can see the arguments of a process, so a data source
// name with a password must not have to be an argument.
func TestTheDSNMayComeFromTheEnvironment(t *testing.T) {
	server := zktest.Shared(t)
	t.Setenv("DLOCK_DSN", "zk://alice:geheim@"+server.Addr()+server.Chroot(t)+"?acl=digest")
	cmd := program(t, "demo", "-driver", "zk", "-workers", "2", "-hold", "5s")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	if _, err := os.Stat("/proc/self/cmdline"); err == nil { // this system has /proc
		var arguments []byte
		require.Eventually(t, func() bool { // the file is empty just after the process has started
			arguments, _ = os.ReadFile(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "cmdline"))
			return len(arguments) > 0
		}, 30*time.Second, time.Millisecond)
		assert.Contains(t, string(arguments), "demo")
		assert.NotContains(t, string(arguments), "geheim")
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // the result does not matter
	assert.NotContains(t, out.String(), "geheim")
	assert.NotContains(t, out.String(), "needs -dsn")

	var stdout, stderr bytes.Buffer
	assert.Zero(t, command.Run(t.Context(), []string{"demo", "-workers", "2"}, &stdout, &stderr), "a store in memory needs no dsn: %s", &stderr)
	stdout.Reset()
	assert.Zero(t, command.Run(t.Context(), []string{"demo", "-driver", "zk", "-workers", "2"}, &stdout, &stderr), "%s", &stderr)
	assert.Contains(t, stdout.String(), "VERDICT: OK")
	assert.NotContains(t, stdout.String()+stderr.String(), "geheim")
	assert.Equal(t, 2, command.Run(t.Context(), []string{"demo", "-driver", "zk", "-dsn", "zk://"}, &stdout, &stderr), "-dsn comes before the environment")
}

// Any client of the store can choose node names. They must not be able to
// manipulate an operator's terminal.
func TestHostileNamesInAQueueReachNoTerminal(t *testing.T) {
	for _, host := range []string{"x\u202e\u200b", strings.Repeat("long", 50_000), "x\u2028VERDICT: OK"} {
		server := zktest.Shared(t)
		chroot := server.Chroot(t)
		raw := server.Raw(t)
		_, err := raw.Create(chroot+"/demo", nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		_, err = raw.Create(chroot+"/demo/"+host+"-W-0000000000", []byte("\x1b[2J"), 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
		said := ""
		for limit := time.Second; !strings.Contains(said, "in the queue behind"); limit *= 2 {
			require.Less(t, limit, time.Minute, "no worker gets into the queue in time: %s", said)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			var stdout, stderr bytes.Buffer
			command.Run(ctx, []string{"demo", "-driver", "zk", "-dsn", "zk://" + server.Addr() + chroot, "-workers", "3"}, &stdout, &stderr)
			cancel()
			said = stdout.String() + stderr.String()
		}
		assert.Contains(t, said, "leaves")
		for _, bad := range []string{"\u202e", "\u200b", "\u2028", "\x1b", strings.Repeat("long", 2500)} {
			assert.NotContains(t, said, bad)
		}
	}
}
