package zktest

import (
	"os"
	"path/filepath"
)

// logConfigs has the configuration files for the logging libraries of all
// ZooKeeper releases. They enable warnings, so that the log shows why a server
// does not start.
var logConfigs = map[string]string{
	"logback.xml": `<configuration>
<appender name="console" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %level %logger %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="console"/></root>
</configuration>
`,
	"log4j.properties": `log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c %m%n
`,
}

func configureLogs(dir string) error {
	for name, text := range logConfigs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func logFlags(dir string) []string {
	return []string{
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dlogback.configurationFile=" + filepath.Join(dir, "logback.xml"),
		"-Dlog4j.configuration=file:" + filepath.Join(dir, "log4j.properties"),
	}
}
