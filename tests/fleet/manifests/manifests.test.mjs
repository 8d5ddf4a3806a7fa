// packaging/kubernetes: valid by Kubernetes' schemas, its parts fit each other, and the gauges that gateways read are there.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { HTTPRoute } from '@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1';
import * as yaml from 'js-yaml';
import { StatefulSet } from 'kubernetes-models/apps/v1';
import { PodDisruptionBudget } from 'kubernetes-models/policy/v1';
import { Service } from 'kubernetes-models/v1';

const folder = process.env.TQ_MANIFESTS;
const schemas = { StatefulSet, Service, PodDisruptionBudget, HTTPRoute };
const all = readdirSync(folder).filter((name) => name.endsWith('.yaml')).flatMap((name) => yaml.loadAll(readFileSync(join(folder, name), 'utf8')));
const the = (kind) => {
    const found = all.filter((one) => one.kind === kind);
    assert.equal(found.length, 1, kind);
    return found[0];
};

test('each is valid by its schema', () => {
    for (const [kind, Schema] of Object.entries(schemas)) {
        const found = the(kind);
        new Schema(structuredClone(found)).validate();
        assert.throws(() => new Schema({ ...structuredClone(found), spec: 7 }).validate(), kind);
    }
    const wrong = structuredClone(the('StatefulSet'));
    wrong.spec.template.spec.containers[0].readinessProbe.periodSeconds = 'often';
    assert.throws(() => new StatefulSet(wrong).validate());
    assert.equal(all.length, Object.keys(schemas).length + 1); // and the pool, whose schema npm does not have
});

test('the pool has the fields of its definition', () => {
    const pool = the('InferencePool');
    assert.equal(pool.apiVersion, 'inference.networking.k8s.io/v1');
    assert.deepEqual(Object.keys(pool.spec).sort(), ['endpointPickerRef', 'selector', 'targetPorts']);
    assert.deepEqual(Object.keys(pool.spec.selector), ['matchLabels']);
    assert.ok(pool.spec.targetPorts.length === 1 && Number.isInteger(pool.spec.targetPorts[0].number));
    assert.ok(Number.isInteger(pool.spec.endpointPickerRef.port.number) && ['FailOpen', 'FailClose'].includes(pool.spec.endpointPickerRef.failureMode));
});

test('selectors, ports and volumes fit each other', () => {
    const set = the('StatefulSet').spec, pod = set.template.spec, [container] = pod.containers;
    for (const selector of [set.selector.matchLabels, the('Service').spec.selector, the('PodDisruptionBudget').spec.selector.matchLabels, the('InferencePool').spec.selector.matchLabels])
        assert.deepEqual(selector, set.template.metadata.labels);
    assert.equal(set.serviceName, the('Service').metadata.name);
    const [port] = container.ports;
    for (const probe of [container.startupProbe, container.readinessProbe]) assert.deepEqual(probe.httpGet, { path: '/health', port: port.name });
    assert.equal(container.livenessProbe.tcpSocket.port, port.name);
    assert.equal(the('InferencePool').spec.targetPorts[0].number, port.containerPort);
    assert.equal(the('HTTPRoute').spec.rules[0].backendRefs[0].name, the('InferencePool').metadata.name);
    const volumes = [...pod.volumes, ...set.volumeClaimTemplates.map((claim) => claim.metadata)].map((volume) => volume.name).sort();
    assert.deepEqual(container.volumeMounts.map((mount) => mount.name).sort(), volumes);
    assert.ok(pod.terminationGracePeriodSeconds > container.lifecycle.preStop.sleep.seconds + 60); // a minute for slow readers
});

test('/metrics has the gauges that endpoint pickers look for', async () => {
    const text = await (await fetch(new URL('/metrics', process.env.TQ_PAGE_URL))).text();
    for (const name of ['vllm:num_requests_waiting', 'vllm:num_requests_running', 'vllm:kv_cache_usage_perc']) {
        assert.match(text, new RegExp(`^# TYPE ${name} gauge$`, 'm'));
        assert.equal(text.match(new RegExp(`^${name}\\{model_name="[^"]*"\\} [0-9.e+-]+$`, 'gm')).length, 1, name); // of several they read one
    }
    assert.match(text, /^vllm:cache_config_info\{block_size="256",num_gpu_blocks="[1-9][0-9]*"\} 1$/m);
});
