package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// etcdServer is one etcd server with its default settings, without TLS.
type etcdServer struct {
	cmd    *exec.Cmd
	alive  io.Closer // the shell's input: when it ends, the shell ends etcd and removes the directory
	listen string
}

// keep runs etcd until its input ends, by whatever cause.
const keep = `
dir=$1
shift
"$@" </dev/null >"$dir/log" 2>&1 &
pid=$!
cat >/dev/null
kill "$pid"
wait "$pid"
rm -rf "$dir"
`

func startEtcd() (*etcdServer, error) {
	path, err := exec.LookPath("etcd")
	if err != nil {
		return nil, fmt.Errorf("no etcd: install etcd-server")
	}
	clients, err := freeAddress()
	if err != nil {
		return nil, err
	}
	peers, err := freeAddress()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-etcd-")
	if err != nil {
		return nil, err
	}
	s := &etcdServer{listen: clients}
	s.cmd = exec.Command("/bin/sh", "-c", keep, "bench-etcd", dir, path, "--data-dir", dir+"/data", "--name", "bench",
		"--listen-client-urls", "http://"+clients, "--advertise-client-urls", "http://"+clients,
		"--listen-peer-urls", "http://"+peers, "--initial-advertise-peer-urls", "http://"+peers,
		"--initial-cluster", "bench=http://"+peers)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt is not for it: it has yet to clean up
	if s.alive, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if s.healthy() {
			return s, nil
		}
		if time.Since(began) > 60*time.Second {
			said, _ := os.ReadFile(dir + "/log")
			s.stop()
			return nil, fmt.Errorf("etcd has not started: %s", said)
		}
	}
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (s *etcdServer) healthy() bool {
	resp, err := http.Get("http://" + s.listen + "/health")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return strings.Contains(string(text), `"health":"true"`) || strings.Contains(string(text), `"health": "true"`)
}

func (s *etcdServer) stop() {
	s.alive.Close()
	_ = s.cmd.Wait() // its status is that of rm
}

func (s *etcdServer) addr() string { return s.listen }

func (s *etcdServer) version() string {
	out, err := exec.Command("etcd", "--version").Output()
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(first, "etcd Version: ")
}

// read adds up the metrics of the gRPC services; messages of streams (watches, keep-alives of
// leases) count as packets. The metrics are read by plain HTTP, which they do not count.
func (s *etcdServer) read() (c counters, err error) {
	resp, err := http.Get("http://" + s.listen + "/metrics")
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, _, _ = strings.Cut(name, "{")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch name {
		case "grpc_server_msg_received_total":
			c.received += n
		case "grpc_server_msg_sent_total":
			c.sent += n
		case "etcd_network_client_grpc_received_bytes_total":
			c.bytesIn += n
		case "etcd_network_client_grpc_sent_bytes_total":
			c.bytesOut += n
		case "etcd_debugging_mvcc_keys_total":
			c.contenders += n
		case "etcd_debugging_mvcc_watcher_total":
			c.watchers += n
		}
	}
	return c, nil
}
