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

// process is an etcd server that may outlive a test, so its methods return
// errors instead of failing one.
type process struct {
	proc     *testenv.Process
	settings settings
	name     string

	client, peer, metrics string // host:port

	prefixes atomic.Int64
}

// Short intervals allow short leases, because etcd's minimum lease is one and a
// half election timeouts, rounded up to whole seconds.
const (
	heartbeatInterval = 50 * time.Millisecond
	electionTimeout   = 500 * time.Millisecond
)

// newProcess chooses a server's ports. Call prepare next, then launch.
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

// member returns the server's entry for --initial-cluster.
func (p *process) member() string { return p.name + "=http://" + p.peer }

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

// launch starts the server and waits until it is healthy, which implies that
// the cluster has a leader. The error matches [testenv.ErrPortTaken] if the
// caller should retry with other ports.
func (p *process) launch() error {
	return p.proc.Start(testenv.Startup{
		Ready:     p.healthy,
		PortTaken: func(log string) bool { return strings.Contains(log, "address already in use") },
		Exiting: func(log string) bool {
			return strings.Contains(log, `"level":"fatal"`) || strings.Contains(log, " C | ") || strings.Contains(log, "\npanic:")
		},
	})
}

func (p *process) close() error {
	if p.proc == nil {
		return nil
	}
	return p.proc.Close()
}

func (p *process) healthy() bool {
	text, err := p.get("/health")
	return err == nil && strings.Contains(text, `"health":"true"`)
}

// metric returns the sum of a metric over all lines whose labels contain label.
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

// get sends a GET request to the metrics port. etcd does not count it as a
// client's request.
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
