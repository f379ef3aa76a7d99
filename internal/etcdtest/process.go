package etcdtest

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// process is one server with its ports. It does not depend on a test.
type process struct {
	proc     *testenv.Process
	settings settings
	name     string

	client, peer, metrics string // host:port

	prefixes atomic.Int64
}

// The timing of the servers. etcd grants no lease that is shorter than one and
// a half election timeouts. It rounds that up to whole seconds, so the shortest
// lease is 1 s here.
const (
	heartbeatInterval = 50 * time.Millisecond
	electionTimeout   = 500 * time.Millisecond
)

// newProcess chooses the ports of a server. Nothing is started, and the server
// has no command yet.
func newProcess(name string, opts []Option) (*process, error) {
	p := &process{name: name, settings: settings{scheme: "http"}}
	for _, opt := range opts {
		opt(&p.settings)
	}
	for _, addr := range []*string{&p.client, &p.peer, &p.metrics} {
		port, err := testenv.FreePort()
		if err != nil {
			return nil, err
		}
		*addr = testenv.Loopback(port)
	}
	return p, nil
}

// member returns the server's part of the list of all members.
func (p *process) member() string { return p.name + "=http://" + p.peer }

// prepare gives the server its directory and its command.
func (p *process) prepare(members string) error {
	dir, err := os.MkdirTemp("", "etcdtest-")
	if err != nil {
		return err
	}
	millis := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	clients := p.settings.scheme + "://" + p.client
	var command []string
	if p.settings.hangingDisk {
		if command, err = hangDiskCommand(dir); err != nil {
			os.RemoveAll(dir)
			return err
		}
	}
	command = append(command, append([]string{"etcd", "--name", p.name, "--data-dir", filepath.Join(dir, "data"),
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", "http://" + p.peer, "--initial-advertise-peer-urls", "http://" + p.peer,
		"--listen-metrics-urls", "http://" + p.metrics,
		"--initial-cluster", members, "--initial-cluster-token", members,
		"--heartbeat-interval", millis(heartbeatInterval), "--election-timeout", millis(electionTimeout),
		"--enable-grpc-gateway=false", "--enable-v2=false",
	}, p.settings.args...)...)
	if p.proc, err = testenv.NewProcess(dir, command); err != nil {
		os.RemoveAll(dir)
	}
	return err
}

// launch starts the server and waits until it answers as a member that has a
// leader. The error matches [testenv.ErrPortTaken] if another try with other
// ports would help.
func (p *process) launch() error {
	return p.proc.Start(testenv.Startup{
		Ready:     p.healthy,
		PortTaken: func(log string) bool { return strings.Contains(log, "address already in use") },
		Exiting: func(log string) bool {
			return strings.Contains(log, `"level":"fatal"`) || strings.Contains(log, " C | ") || strings.Contains(log, "\npanic:")
		},
	})
}

func (p *process) close() {
	if p.proc != nil {
		_ = p.proc.Close() // the server is dead, only its directory may be left
	}
}

func (p *process) healthy() bool {
	text, err := p.get("/health")
	return err == nil && strings.Contains(text, `"health":"true"`)
}

// metric returns the sum of the values of a metric. It counts only the lines
// that have the text label in their labels.
func (p *process) metric(name, label string) (sum float64, err error) {
	text, err := p.get("/metrics")
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), " ")
		if n, labels, _ := strings.Cut(key, "{"); n == name && strings.Contains(labels, label) {
			x, _ := strconv.ParseFloat(value, 64)
			sum += x
		}
	}
	return sum, err
}

// get sends an HTTP request to the port for metrics. This port has no TLS, and
// the server's counters of requests do not count what it receives.
func (p *process) get(path string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + p.metrics + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}
