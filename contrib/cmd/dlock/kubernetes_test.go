//go:build linux

package main

import (
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// fields lists the Kubernetes fields that the manifests may use.
var fields = strings.Fields(`apiVersion kind metadata name labels app spec replicas selector matchLabels
	schedule concurrencyPolicy jobTemplate backoffLimit activeDeadlineSeconds podFailurePolicy rules
	action onPodConditions type onExitCodes containerName operator values
	template restartPolicy terminationGracePeriodSeconds containers image command args env value
	volumeMounts mountPath readOnly volumes secret secretName`)

// field follows a path of names. In a list, it takes the first element.
func field(of any, path ...string) any {
	for _, name := range path {
		if list, is := of.([]any); is {
			of = list[0]
		}
		of = of.(map[string]any)[name]
	}
	return of
}

func list(of any) (texts []string) {
	for _, v := range of.([]any) {
		texts = append(texts, v.(string))
	}
	return texts
}

func kubernetesPage(t *testing.T, language string) (page string, blocks []string) {
	text, err := os.ReadFile("../../../docs/operate/kubernetes.md")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)\n```").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	return string(text), blocks
}

func TestTheManifestsRunDlock(t *testing.T) {
	page, blocks := kubernetesPage(t, "yaml")
	secret := regexp.MustCompile(`\nkubectl create secret generic (\w+) --from-file=(\w+)\n`).FindStringSubmatch(page)
	require.NotNil(t, secret)
	var kinds []string
	for _, block := range blocks {
		for _, m := range regexp.MustCompile(`(\w+):(?: |\n)`).FindAllStringSubmatch(block, -1) {
			assert.Contains(t, fields, m[1])
		}
		var m map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(block), &m))
		kinds = append(kinds, m["kind"].(string)+" "+m["apiVersion"].(string))
		work := m["spec"]
		if m["kind"] == "CronJob" {
			work = field(work, "jobTemplate", "spec")
		}
		pod := field(work, "template", "spec")
		if m["kind"] == "CronJob" {
			assert.Equal(t, "Never", field(pod, "restartPolicy"), "podFailurePolicy needs it")
			rules := field(work, "podFailurePolicy", "rules").([]any)
			assert.Equal(t, field(pod, "containers", "name"), field(rules[1], "onExitCodes", "containerName"))
		} else {
			assert.Equal(t, field(work, "selector", "matchLabels"), field(work, "template", "metadata", "labels"))
		}
		assert.Equal(t, secret[1], field(pod, "volumes", "secret", "secretName"))
		assert.Equal(t, field(pod, "volumes", "name"), field(pod, "containers", "volumeMounts", "name"))

		run := exec.Command(os.Args[0], list(field(pod, "containers", "args"))...)
		run.Env = []string{runProgram + "=yes"}
		for _, e := range field(pod, "containers", "env").([]any) {
			run.Env = append(run.Env, field(e, "name").(string)+"="+field(e, "value").(string))
		}
		dsn, err := url.Parse(strings.TrimPrefix(run.Env[len(run.Env)-1], "DLOCK_DSN="))
		require.NoError(t, err)
		assert.Equal(t, field(pod, "containers", "volumeMounts", "mountPath").(string)+"/"+secret[2], dsn.Query().Get("password_file"))
		assert.Empty(t, dsn.Query().Get("session_timeout"), "so it is 10 s, and the kill delay an eighth of that")
		assert.Greater(t, field(pod, "terminationGracePeriodSeconds"), 2+5, "kill delay, and unlocking")

		// Status 127 means that only the program to run is missing here.
		assert.Equal(t, []string{"/usr/local/bin/dlock"}, list(field(pod, "containers", "command")))
		out, _ := run.CombinedOutput()
		assert.Equal(t, 127, run.ProcessState.ExitCode(), "%s", out)
		assert.Contains(t, string(out), run.Args[len(run.Args)-1]+": no such file")
	}
	assert.Equal(t, []string{"CronJob batch/v1", "Deployment apps/v1"}, kinds)
}

// Like the Dockerfile, the test turns off cgo, so that the binary is static.
func TestTheDockerfileBuildsThisProgram(t *testing.T) {
	_, blocks := kubernetesPage(t, "dockerfile")
	require.Len(t, blocks, 1)
	m := regexp.MustCompile(`^FROM golang:(\S+) AS build\nCOPY \. /src\nRUN cd /src && CGO_ENABLED=0 go build -o /dlock (\S+)\n`).FindStringSubmatch(blocks[0])
	require.NotNil(t, m, "%s", blocks[0])
	assert.Contains(t, blocks[0], "\nCOPY --from=build /dlock /usr/local/bin/dlock\nENTRYPOINT [\"/usr/local/bin/dlock\"]")
	goMod, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	assert.Contains(t, string(goMod), "\ngo "+m[1]+".")
	list := exec.Command("go", "list", "-deps", m[2])
	list.Dir, list.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
	out, err := list.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "\ngithub.com/dlock-go/dlock/contrib/cmd/dlock\n")
}
